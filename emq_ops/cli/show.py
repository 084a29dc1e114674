"""``emq-ops show``."""

from __future__ import annotations

import io
import marshal
import sys
from collections.abc import Iterator
from typing import Any

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.options import new_app
from emq_ops.cli.output import counted, emit_one
from emq_ops.cli.table import look
from emq_ops.deploy.model import instant
from emq_ops.deploy.render import value
from emq_ops.deploy.store.revisions import revision

app = new_app()
Step = dict[str, Any]


@app.command()
def show(
    ctx: typer.Context,
    number: int = typer.Argument(..., metavar="REV", help="A number that `history` shows."),
    yaml: bool = typer.Option(False, "--yaml", help="The config that was applied, as YAML."),
) -> None:
    """Print a revision: what it changed, and what it says.

    Queues of which it changed the same are shown once; -v shows each.

    Examples:

      emq-ops show 3

      emq-ops show 3 --yaml
    """
    context = CommandContext.of(ctx)
    with context.ledger_alone() as ledger:
        found = revision(ledger, number)
    if yaml:
        from ruamel.yaml import YAML  # just where somebody wants it

        out = io.StringIO()
        YAML(typ="safe", pure=True).dump(found.document.data["config"], out)
        sys.stdout.write(out.getvalue())
        return
    head = found.head
    row = {
        "revision": head.number,
        "made": instant(head.made_ms),
        "kind": head.kind,
        "who": head.who,
        "why": head.why,
        "files": head.files,
        "sha256": head.sha256,
    }
    if context.output == "json":
        emit_one({**row, "document": found.document.data, "plan": found.plan}, "json")
        return
    if context.output == "table":
        emit_one(row, "table")
        sys.stdout.write("\n")
    steps = found.plan["steps"]
    alike = _alike(steps) if context.output == "table" and not look.verbose else {}
    context.emit_rows(_rows(steps, alike), ("sign", "address", "field", "before", "after"))


def _alike(steps: list[Step]) -> dict[str, list[str]]:
    """The first of those queues of which a revision changed the same, with the others."""
    said: dict[str, list[object]] = {}
    for step in steps:
        if (queue := step["queue"]) is not None:
            said.setdefault(queue, []).append((step["sign"], step["address"].removeprefix(queue), step["fields"]))
    groups: dict[bytes, list[str]] = {}
    for queue, all_of_it in said.items():
        groups.setdefault(marshal.dumps(all_of_it, 2), []).append(queue)
    return {first: others for first, *others in groups.values()}


def _rows(steps: list[Step], alike: dict[str, list[str]]) -> Iterator[dict[str, object]]:
    """A row a field; behind the first of queues that are alike one that names the others."""
    last = {step["queue"]: step["number"] for step in steps}
    left_out = {queue for others in alike.values() for queue in others}
    for step in steps:
        queue = step["queue"]
        if queue in left_out:
            continue
        yield from _fields(step)
        others = alike.get(queue) if last[queue] == step["number"] else None
        if others:
            some = ", ".join(others[:3]) + (" ..." if len(others) > 3 else "")
            yield {"sign": step["sign"], "address": f"{counted(len(others), 'queue')} like {queue} ({some})"}


def _fields(step: Step) -> list[dict[str, object]]:
    return [
        {
            "sign": step["sign"],
            "address": step["address"],
            "field": field["name"],
            "before": value(field["before"]),
            "after": value(field["after"]),
        }
        for field in step["fields"]
        if step["op"] != "create" or field["after"] is not None
    ]

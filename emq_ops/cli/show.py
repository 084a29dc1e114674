"""``emq-ops show``."""

from __future__ import annotations

import io
import sys

import typer
from ruamel.yaml import YAML

from emq_ops.cli.context import CommandContext
from emq_ops.cli.options import new_app
from emq_ops.cli.output import emit_one
from emq_ops.deploy.model import instant
from emq_ops.deploy.render import value
from emq_ops.deploy.store.revisions import Revision, revision

app = new_app()


@app.command()
def show(
    ctx: typer.Context,
    number: int = typer.Argument(..., metavar="REV", help="A number that `history` shows."),
    yaml: bool = typer.Option(False, "--yaml", help="The config that was applied, as YAML."),
) -> None:
    """Print a revision: what it changed, and what it says.

    Examples:

      emq-ops show 3

      emq-ops show 3 --yaml
    """
    context = CommandContext.of(ctx)
    with context.ledger_alone() as ledger:
        found = revision(ledger, number)
    if yaml:
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
    context.emit_rows(_steps(found), ("sign", "address", "field", "before", "after"))


def _steps(found: Revision) -> list[dict[str, object]]:
    return [
        {
            "sign": step["sign"],
            "address": step["address"],
            "field": field["name"],
            "before": value(field["before"]),
            "after": value(field["after"]),
        }
        for step in found.plan["steps"]
        for field in step["fields"]
        if step["op"] != "create" or field["after"] is not None
    ]

"""``emq-ops flow``: add flows from a file, see how one stands."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.job_places import located
from emq_ops.cli.job_tree import draw
from emq_ops.cli.options import QueueArg, new_app
from emq_ops.cli.output import say
from emq_ops.cli.queues import is_new
from emq_ops.overview.flows import flow_of
from emq_ops.protocol import ids
from emq_ops.protocol.errors import BadInputError, EmqError, one_line
from emq_ops.protocol.keyspace import queue_name
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.transitions import flows
from emq_ops.protocol.transitions.flows import FlowJob, ParentPolicy

app = new_app("Add flows from a file, see how one stands.")
_KEYS = {"id", "payload", "queue", "policy", "children"}
_POLICIES = {"fail": ParentPolicy.FAIL, "ignore": ParentPolicy.IGNORE}


@app.command()
def add(
    ctx: typer.Context,
    queue: QueueArg,
    file: Annotated[Path, typer.Argument(help="JSON of a flow, or of a list of flows; - reads stdin.", metavar="FILE")],
    new: Annotated[bool, typer.Option("--new", help="A new queue, though another has a name like it.")] = False,
) -> None:
    """Add flows, and print the ids of their parents. Exit 1 where some were refused: each of these is named.

    A flow is {"payload": ..., "children": [...]}; each of these jobs may have an "id", a "queue" (its parent's unless
    given), a "policy" ("fail" or "ignore": what its death is to its parent) and children of its own. With ids of its
    own a flow whose adding was cut off is finished by adding it again.

    Examples:

      emq-ops flow add orders order-17.json

      emq-ops flow add orders - --new
    """
    context, queue = CommandContext.of(ctx), queue_name(queue)
    with context.server("worker") as server:
        if not new and is_new(context, queue, server):
            say(f"emq-ops: {queue} is a new queue; this is its first flow")
        roots = [_job(one, "$") for one in _read(file)]
        told = flows.add_many(Queue(server, queue), roots)
    failed = False
    rows = []
    for root, reply in zip(roots, told, strict=True):
        if isinstance(reply, EmqError):
            failed = True
            say(f"emq-ops: {reply}; to go on: {json.dumps(_document(root), ensure_ascii=False)}")
        else:
            rows.append({"queue": queue, "job": root.job, "added": reply})
    if context.output == "table":
        for row in rows:
            sys.stdout.write(f"{row['job']}\n")
            if not row["added"]:
                say(f"emq-ops: {row['job']} is there; nothing was changed")
    else:
        context.emit_rows(rows, ("queue", "job", "added"))
    if failed:
        raise typer.Exit(1)


def _read(file: Path) -> list[Any]:
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text("utf-8")
        found = json.loads(text)
    except OSError as fault:
        raise BadInputError(f"can't read it: {fault.strerror}", where=str(file)) from None
    except ValueError as fault:
        raise BadInputError(f"it is no JSON: {fault}", where=str(file)) from None
    return found if isinstance(found, list) else [found]


def _job(said: Any, path: str) -> FlowJob:
    """Raises BadInputError with the place in the file."""
    if not isinstance(said, dict):
        raise BadInputError(f"{path} is no object with a payload", fix='{"payload": ..., "children": [...]}')
    unknown = said.keys() - _KEYS
    if unknown or "payload" not in said:
        what = f"has the key '{one_line(min(unknown))}'" if unknown else "has no payload"
        raise BadInputError(f"{path} {what}", fix=f"a flow's job has {', '.join(sorted(_KEYS))}")
    policy, children = said.get("policy", "fail"), said.get("children", [])
    if policy not in _POLICIES:
        raise BadInputError(f"{path}.policy is {json.dumps(policy)}", fix="fail or ignore")
    if not isinstance(children, list):
        raise BadInputError(f"{path}.children is no list")
    payload, where, job = said["payload"], said.get("queue"), said.get("id")
    if not all(isinstance(text, str | None) for text in (where, job)):
        raise BadInputError(f"{path}: id and queue are texts")
    return FlowJob(
        ids.mint() if job is None else job,
        payload if isinstance(payload, str) else json.dumps(payload),
        where,
        _POLICIES[policy],
        tuple(_job(child, f"{path}.children[{number}]") for number, child in enumerate(children)),
    )


def _document(one: FlowJob) -> dict[str, Any]:
    payload = one.payload if isinstance(one.payload, str) else one.payload.decode("utf-8", "backslashreplace")
    out: dict[str, Any] = {"id": one.job, "payload": payload}
    if one.queue is not None:
        out["queue"] = one.queue
    if one.policy is ParentPolicy.IGNORE:
        out["policy"] = "ignore"
    return {**out, **({"children": [_document(child) for child in one.children]} if one.children else {})}


@app.command()
def show(
    ctx: typer.Context,
    job: Annotated[str, typer.Argument(help="Any job of the flow.", metavar="JOB")],
    queue: Annotated[str | None, typer.Option(help="The queue it is in.", metavar="QUEUE")] = None,
) -> None:
    """Show the tree of a flow, from its root: how each job stands, and what its parent heard of it.

    At most 200 jobs are shown. Children are found by their rows, within 50,000 keys of the server.

    Examples:

      emq-ops flow show JOB0SSDN4oZ3VI

      emq-ops flow show JOB0SSDN4oZ3VI --queue orders --output json
    """
    context = CommandContext.of(ctx)
    with context.server("job") as server:
        name, _ = located(context, server, [job], queue)[job]
        tree = flow_of(server, name, job)
    if tree is None:
        raise BadInputError("the job is of no flow", where=job, fix=f"emq-ops job show {job}")
    if context.output == "table":
        sys.stdout.write("\n".join(draw(tree)) + "\n")
    else:
        context.emit_one({"job": tree.job, "whole": tree.whole, "flow": tree.root.as_row()})

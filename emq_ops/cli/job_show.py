"""``emq-ops job show``: one job, wherever it is or was."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Annotated, Any

import typer

from emq_ops.audit.life import JobLife, LifeEvent, life_of
from emq_ops.audit.restarts import iso
from emq_ops.cli.audit_parts import archive_of, queues_of
from emq_ops.cli.context import CommandContext
from emq_ops.cli.job_tree import draw, may
from emq_ops.cli.output import emit_one, emit_rows, say
from emq_ops.cli.table import plain
from emq_ops.overview.flows import FlowTree, flow_of
from emq_ops.overview.near_jobs import unknown_job
from emq_ops.overview.words import ago
from emq_ops.protocol.errors import BadInputError, EmqError, one_line
from emq_ops.protocol.ids import is_valid
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.scores import score_ms
from emq_ops.protocol.server import Server

MOST_SHOWN = 4_000
"""Characters of a payload that a table shows."""
_ROW = ("attempts", "stalled", "group", "parent", "parent_queue", "lease_epoch", "lock", "progress", "last_error")


def show(
    ctx: typer.Context,
    job: Annotated[str, typer.Argument(help="Its id.", metavar="JOB")],
    queue: Annotated[str | None, typer.Option(help="Its queue, if known.", metavar="QUEUE")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Just its payload, byte for byte.")] = False,
) -> None:
    """Show one job: where it is, row, lease, lane, its flow's tree, payload, logs, life, and what one may do with it.

    A job that is nowhere: where it was last seen. Payloads come as JSON where they are, else as text, else in hex.

    Examples:

      emq-ops job show JOB0SS8QFjgi3i

      emq-ops job show JOB0SS8QFjgi3i --raw > payload
    """
    context = CommandContext.of(ctx)
    notes: list[str] = []
    with context.server("job") as server, contextlib.ExitStack() as stack:
        ledger = stack.enter_context(context.ledger_if_there())
        names = queues_of(context, server, [queue] if queue else None)
        if not (job[:3] == "JOB" and is_valid(job)):
            raise unknown_job(server, job, names, "see which there are: emq-ops job ls QUEUE")
        archived: list[LifeEvent] = []
        try:
            archive = stack.enter_context(archive_of(context, server))
            archived = [] if archive is None else list(archive.events(job))
        except EmqError as fault:
            notes.append(f"without the archive: {fault}")
        life = life_of(job, server=server, queues=names, ledger=ledger, archived=archived)
        places = [_place(server, job, one) for one in life.live]
        flow = None
        if len(places) == 1 and not raw:
            flow = flow_of(server, places[0]["queue"], job)
    if raw:
        _write_raw(life, places)
        return
    if context.output in ("json", "jsonl"):
        told_flow = None if flow is None else {**flow.root.as_row(), "whole": flow.whole}
        told = [{**place, "payload": readable(place.pop("payload"))} for place in places]
        context.emit_one(
            life.as_row() | {"places": told, "may": [may(place, job) for place in places], "flow": told_flow}
        )
        return
    for place in places or [{}]:
        _tell(life, place, flow)
    for note in notes:
        say(f"note: {one_line(note)}")


def _place(server: Server, job: str, live: dict[str, str]) -> dict[str, Any]:
    """What the server has of the job in one queue, read raw."""
    keys = keys_of(live["queue"])
    place: dict[str, Any] = {"queue": live["queue"], "state": live["state"], "payload": None}
    if live["state"] == "damaged":
        return place | {"why": live.get("why", "")}
    values, deadline, due, locked = server.read_each(
        [
            ("HMGET", keys.row(job), *_ROW, "payload"),
            ("ZSCORE", keys.active, job),
            ("ZSCORE", keys.schedule, job),
            ("PTTL", keys.book(job, "lock")),
        ]
    )
    *fields, place["payload"] = values
    place |= {name: plain(value) for name, value in zip(_ROW, fields, strict=True) if value is not None}
    place["now_ms"] = server.now_ms(live["queue"])
    place["deadline_ms"] = score_ms(deadline) if isinstance(deadline, bytes) else None
    place["due_ms"] = score_ms(due) if isinstance(due, bytes) else None
    place["lock_ms"] = locked if isinstance(locked, int) and locked > 0 else None
    return place


def _last_queue(life: JobLife) -> str:
    """Where it was last, as far as anybody knows."""
    return next((str(one.facts["queue"]) for one in reversed(life.events) if one.facts.get("queue")), "QUEUE")


def _write_raw(life: JobLife, places: list[dict[str, Any]]) -> None:
    if len(places) != 1 or places[0]["payload"] is None:
        raise BadInputError(f"no payload of {life.job} on the server", fix="--queue QUEUE, or bring it back first")
    sys.stdout.flush()
    sys.stdout.buffer.write(places[0]["payload"])
    sys.stdout.buffer.flush()


def readable(payload: bytes | None) -> Any:
    """A payload as data: what its JSON says, its text, or ``{"hex": ...}``."""
    if payload is None:
        return None
    try:
        return json.loads(payload)
    except ValueError:
        pass
    try:
        return payload.decode("utf-8")
    except UnicodeDecodeError:
        return {"hex": payload.hex()}


def _shown(payload: bytes) -> str:
    found = readable(payload)
    if isinstance(found, dict) and set(found) == {"hex"} and not payload.startswith(b"{"):
        text = f"hex {found['hex']}"
    else:
        text = found if isinstance(found, str) else json.dumps(found, indent=2, ensure_ascii=False)
    lines = [one_line(line) for line in text.splitlines()]
    whole = "\n".join(f"  {line}" for line in lines)
    return whole if len(whole) <= MOST_SHOWN else f"{whole[:MOST_SHOWN]}... ({len(payload):,} bytes; --raw)"


def _tell(life: JobLife, place: dict[str, Any], flow: FlowTree | None) -> None:
    now = place.get("now_ms", 0)
    if not place:
        last = next((one for one in reversed(life.events) if one.at_ms is not None), None)
        seen = "" if last is None else f"; last seen {iso(last.at_ms)}: {last.text}"
        sys.stdout.write(f"{life.job} is on the server no more{one_line(seen)}\n")
    else:
        head = {"job": life.job, "queue": place["queue"], "state": place["state"], "why": place.get("why")}
        head |= {name: place.get(name) for name in _ROW}
        if place.get("deadline_ms") is not None:
            head["lease"] = f"until {ago(place['deadline_ms'], now)}; the wire does not say which worker holds it"
        if place.get("due_ms") is not None:
            head["due"] = ago(place["due_ms"], now)
        if place.get("lock_ms") is not None:
            head["locked"] = f"a worker's lock stands for {place['lock_ms']:,} ms yet"
        emit_one({name: value for name, value in head.items() if value is not None}, "table")
    if flow is not None:
        sys.stdout.write("\nits flow:\n" + "".join(f"  {line}\n" for line in draw(flow)))
    if place.get("payload") is not None:
        sys.stdout.write(f"\npayload ({len(place['payload']):,} bytes):\n{_shown(place['payload'])}\n")
    elif life.row:
        sys.stdout.write(f"\nas the state keeps it, from {iso(life.kept_ms)}:\n")
        emit_one(life.row, "table")
    if life.logs:
        sys.stdout.write("\nlog:\n" + "".join(f"  {line}\n" for line in life.logs))
    sys.stdout.write("\nits life:\n")
    emit_rows(
        [{"at": iso(one.at_ms), "source": one.source, "what": one.what, "text": one.text} for one in life.events],
        "table",
        ("at", "source", "what", "text"),
    )
    lines = may(place or {"state": "gone"}, life.job, _last_queue(life))
    sys.stdout.write("\nwhat one may do:\n" + "".join(f"  {line}\n" for line in lines))

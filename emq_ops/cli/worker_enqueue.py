"""``emq-ops worker enqueue``: a job to try a queue with."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.options import QueueArg
from emq_ops.cli.output import emit_one, say
from emq_ops.cli.queues import is_new
from emq_ops.cli.values import duration_ms, instant_ms
from emq_ops.protocol import ids
from emq_ops.protocol.errors import BadInputError, EmqError, one_line
from emq_ops.protocol.ids import group_id, job_id
from emq_ops.protocol.keyspace import queue_name
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.transitions.enqueue import MOMENTS, Dedup, NewJob, put


def enqueue_job(
    ctx: typer.Context,
    queue: QueueArg,
    payload: Annotated[str | None, typer.Argument(help="What it carries; - reads stdin.")] = None,
    file: Annotated[Path | None, typer.Option(help="What it carries, byte for byte.", metavar="FILE")] = None,
    group: Annotated[str | None, typer.Option(help="Into this lane, GRP...", metavar="GROUP")] = None,
    delay: Annotated[str | None, typer.Option(help="Not before so long (10m).", metavar="DURATION")] = None,
    at: Annotated[
        str | None, typer.Option(help="Not before then: 10:00 (UTC), or 2026-03-01T10:00:00Z.", metavar="INSTANT")
    ] = None,
    dedup: Annotated[
        str | None,
        typer.Option(help="Not while a job holds this deduplication key; this one holds it then.", metavar="KEY"),
    ] = None,
    ttl: Annotated[
        str | None, typer.Option(help="With --dedup: it holds it for so long at the most.", metavar="DURATION")
    ] = None,
    release: Annotated[
        str,
        typer.Option(
            help="With --dedup: at what it gives it back; none: at the end of --ttl alone.", metavar="MOMENTS"
        ),
    ] = ",".join(MOMENTS),
    new: Annotated[bool, typer.Option("--new", help="A new queue, though another has a name like it.")] = False,
    id: Annotated[str | None, typer.Option("--id", help="Its id, JOB...; minted unless given.", metavar="JOB")] = None,
) -> None:
    """Put a job into a queue, and print its id. Exit 1 where there is a job of that id: nothing was changed.

    Where another job holds the key of --dedup, that one's id is printed, and nothing is added. Workers and acts of
    emq-ops release it as --release says (completed, dead, removed); other workers leave it for its ttl.

    Examples:

      emq-ops worker enqueue orders '{"id": 17}' --delay 10m

      emq-ops worker enqueue mail --file letter.json --dedup invoice-17 --ttl 1h --release completed,removed
    """
    context, queue = CommandContext.of(ctx), queue_name(queue)
    job = ids.mint() if id is None else job_id(id)
    delay_ms = duration_ms(delay, "--delay")
    asked = NewJob(
        job,
        _bytes(payload, file),
        None if group is None else group_id(group),
        delay_ms,
        None if at is None else instant_ms(at, "--at", ahead=True),
        _dedup(dedup, ttl, release),
    )
    with context.server("worker") as server:
        if not new and is_new(context, queue, server):
            say(f"emq-ops: {queue} is a new queue; this is its first job")
        told = put(Queue(server, queue), asked)
    if not told.added and told.job == job:
        raise EmqError("there is a job of this id; nothing was changed", where=job, fix="another --id, or none")
    if not told.added:
        say(f"emq-ops: {one_line(told.job)} holds the key {dedup}; nothing was added")
    if context.output == "table":
        sys.stdout.write(f"{one_line(told.job)}\n")
        return
    row = {
        "job": told.job,
        "queue": queue,
        "state": "pending" if delay_ms is None and at is None else "scheduled",
        "group": asked.group,
        "delay_ms": delay_ms,
        "bytes": len(asked.payload),
        "added": told.added,
    }
    emit_one(row if told.added else {**row, "state": None}, context.output)


def _dedup(key: str | None, ttl: str | None, release: str) -> Dedup | None:
    """Raises BadInputError."""
    if key is None:
        if ttl is not None:
            raise BadInputError("--ttl without --dedup", fix="name the key: --dedup KEY")
        return None
    moments = () if release == "none" else tuple(one.strip() for one in release.split(","))
    return Dedup(key, duration_ms(ttl, "--ttl"), moments)  # type: ignore[arg-type]  # it checks them


def _bytes(payload: str | None, file: Path | None) -> bytes:
    """The payload of the argument, the file or stdin. Raises BadInputError."""
    if (payload is None) == (file is None):
        what = "no payload" if payload is None else "two payloads"
        raise BadInputError(
            what, where="worker enqueue", fix="give it as an argument, by --file FILE, or as - on stdin"
        )
    if file is not None:
        try:
            return file.read_bytes()
        except OSError as fault:
            raise BadInputError(f"can't read: {fault.strerror}", where=str(file), fix="check the path") from None
    assert payload is not None
    return sys.stdin.buffer.read() if payload == "-" else os.fsencode(payload)

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
from emq_ops.cli.values import duration_ms
from emq_ops.protocol import ids
from emq_ops.protocol.errors import BadInputError, EmqError
from emq_ops.protocol.ids import group_id, job_id
from emq_ops.protocol.keyspace import queue_name
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.transitions.enqueue import enqueue, schedule_in


def enqueue_job(
    ctx: typer.Context,
    queue: QueueArg,
    payload: Annotated[str | None, typer.Argument(help="What it carries; - reads stdin.")] = None,
    file: Annotated[Path | None, typer.Option(help="What it carries, byte for byte.", metavar="FILE")] = None,
    group: Annotated[str | None, typer.Option(help="Into this lane, GRP...", metavar="GROUP")] = None,
    delay: Annotated[str | None, typer.Option(help="Not before so long (10m).", metavar="DURATION")] = None,
    new: Annotated[bool, typer.Option("--new", help="A new queue, though another has a name like it.")] = False,
    id: Annotated[str | None, typer.Option("--id", help="Its id, JOB...; minted unless given.", metavar="JOB")] = None,
) -> None:
    """Put a job into a queue, and print its id. Exit 1 where there is a job of that id: nothing was changed."""
    context, queue = CommandContext.of(ctx), queue_name(queue)
    job = ids.mint() if id is None else job_id(id)
    lane = None if group is None else group_id(group)
    delay_ms = duration_ms(delay, "--delay")
    body = _bytes(payload, file)
    with context.server("worker") as server:
        if not new and is_new(context, queue, server):
            say(f"emq-ops: {queue} is a new queue; this is its first job")
        q = Queue(server, queue)
        made = (
            enqueue(q, job, body, group=lane) if delay_ms is None else schedule_in(q, job, body, delay_ms, group=lane)
        )
    if not made:
        raise EmqError("there is a job of this id; nothing was changed", where=job, fix="another --id, or none")
    if context.output == "table":
        sys.stdout.write(f"{job}\n")
        return
    state = "pending" if delay_ms is None else "scheduled"
    emit_one(
        {"job": job, "queue": queue, "state": state, "group": lane, "delay_ms": delay_ms, "bytes": len(body)},
        context.output,
    )


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

"""``emq-ops archive read|query|verify``: what is in the archive, and whether it is whole."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

import emq_archive.upkeep.restore
import emq_archive.upkeep.verify
from emq_archive.live import LiveStream
from emq_archive.log.commit import time_text
from emq_archive.model import DEAD, Record, StreamId, StreamRef, parse_id
from emq_archive.read.archive import Archive
from emq_ops.cli.context import CommandContext
from emq_ops.cli.exits import EXIT_ERROR
from emq_ops.cli.many import QueueTurns, several
from emq_ops.cli.options import QueueArg, SomeOfQueues, StreamArg
from emq_ops.cli.output import say
from emq_ops.cli.progress import bar
from emq_ops.cli.queues import require_queue
from emq_ops.cli.streams import archived_targets
from emq_ops.cli.values import duration_ms, size_bytes
from emq_ops.passes.archive.stream import driver_policy
from emq_ops.protocol import deadline, ids
from emq_ops.protocol.errors import BadInputError, one_line
from emq_ops.protocol.extras import need
from emq_ops.protocol.ids import MAX_STREAM_PART
from emq_ops.protocol.keyspace import queue_name, stream_name
from emq_ops.protocol.queue import Queue

NoLive = Annotated[bool, typer.Option("--no-live", help="Leave out what is only in Valkey.")]
ExpectHead = Annotated[
    str | None, typer.Option(help="The `head` that an earlier verify told: the log must hold it.", metavar="HASH")
]
_VERIFIED = ("queue", "stream", "commits", "segments", "records", "bytes", "orphans", "head")
_ROW = ("stream_id", "time", "evt", "job", "outcome", "attempts")


def ref_of(queue: str, stream: str) -> StreamRef:
    """What a command line names: a stream, or the dead jobs. Raises BadInputError."""
    if stream == DEAD:
        return StreamRef.dead(queue_name(queue))
    return StreamRef(queue_name(queue), stream_name(stream.removeprefix("stream:")))


def read(
    ctx: typer.Context,
    queue: SomeOfQueues,
    stream: StreamArg = "completions",
    since: Annotated[
        str | None, typer.Option("--from", help="First id, EVT id, unix ms or time.", metavar="WHEN")
    ] = None,
    until: Annotated[str | None, typer.Option("--to", help="Last one, inclusive.", metavar="WHEN")] = None,
    job: Annotated[str | None, typer.Option(help="Only records of this job.")] = None,
    limit: Annotated[int | None, typer.Option(help="At most so many.", min=0)] = None,
    no_live: NoLive = False,
) -> None:
    """Print records: the archive, then what is still in the stream, in one order; of several streams one by one.

    Examples:

      emq-ops archive read orders completions --from 2026-01-31 --limit 20

      emq-ops archive read 'mail-*' completions --job JOB0SS8QFjgi3i --output jsonl
    """
    context = CommandContext.of(ctx)
    start, end, job = point(since, last=False), point(until, last=True), job_text(job)
    targets = archived_targets(context, [queue], stream)
    many = several([queue, stream], targets)
    holes: list[str] = []

    def rows() -> Iterator[dict[str, Any]]:
        for target in targets:
            named = dict(zip(("queue", "stream"), target, strict=True)) if many else {}
            with _archive(context, ref_of(*target), no_live) as archive:
                for record in archive.read(start, end, job=job, limit=limit):
                    yield named | _shown(record, context.output)
            holes.extend(archive.holes or ())

    context.emit_rows(rows(), (*(("queue", "stream") if many else ()), *_ROW))
    tell_holes(holes)


def _shown(record: Record, output: str) -> dict[str, Any]:
    if output in ("json", "jsonl"):
        row: dict[str, Any] = {"stream_id": record.stream_id, "evt": record.evt}
        if record.incarnation:
            row["incarnation"] = record.incarnation
        return {**row, "fields": [[name, value] for name, value in record.fields]}
    return {
        "stream_id": record.stream_id,
        "time": time_text(record.time_ms),
        "evt": record.evt,
        "job": record.job,
        "outcome": record.outcome,
        "attempts": record.attempts,
    }


def query(
    ctx: typer.Context,
    queue: QueueArg,
    stream: StreamArg,
    sql: Annotated[str, typer.Argument(help="A query over the view `records`.", metavar="SQL")],
    no_live: NoLive = False,
    timeout: Annotated[str, typer.Option(help="A query that takes longer is ended.", metavar="DURATION")] = "60s",
    memory: Annotated[str, typer.Option(help="So much the query may take.", metavar="SIZE")] = "1GiB",
) -> None:
    """Run SQL over everything: one view `records` of local rows, remote segments and the live stream. It can read
    nothing else. Begun anew where segments expire or are merged meanwhile.

    Columns: ms, seq, incarnation, time, evt, job, outcome, attempts, result, error, "group", fields (a list of name and
    value), queue, stream, stored (remote, local or live). Of one stream.

    Examples:

      emq-ops archive query orders completions 'select outcome, count(*) from records group by 1'

      emq-ops archive query orders dead 'select job, error from records' --no-live --output csv
    """
    context = CommandContext.of(ctx)
    seconds = (duration_ms(timeout, "--timeout") or 0) / 1000
    most = f"{size_bytes(memory, '--memory') or 1}B"
    with (
        _archive(context, ref_of(queue, stream), no_live) as archive,
        deadline.deadline(seconds),
        need("emq_archive.read.query").asked(archive, sql, seconds=seconds, memory=most) as (found, rows),
    ):
        columns = distinct(found)
        context.emit_rows((dict(zip(columns, row, strict=True)) for row in rows), columns)
    tell_holes(archive.holes)


def tell_holes(holes: list[str] | None) -> None:
    """Names what could not be given. Exit 1 where there is such."""
    for hole in holes or ():
        say(f"emq-ops: {one_line(hole)}")
    if holes:
        raise typer.Exit(EXIT_ERROR)


def distinct(names: list[str]) -> list[str]:
    """Column names, each once: ``count_star()``, ``count_star()_1``."""
    out: list[str] = []
    for name in names:
        others = (f"{name}_{number}" for number in itertools.count(1))
        out.append(name if name not in out else next(other for other in others if other not in (*names, *out)))
    return out


@contextlib.contextmanager
def _archive(context: CommandContext, ref: StreamRef, no_live: bool) -> Iterator[Archive]:
    """With the live tail where a server was named, by --url or by the config."""
    policy = driver_policy(context.stream(ref.queue, ref.stream))
    with contextlib.ExitStack() as stack:
        live = None
        require_queue(context, ref.queue)
        if ref.kind == "stream" and not no_live and context.names_server:
            server = stack.enter_context(context.server("archive"))
            live = LiveStream(Queue(server, ref.queue), ref.stream)
        local = stack.enter_context(context.local())
        remote = stack.enter_context(context.remote()) if context.wiring.archive_remote is not None else None
        archive = Archive(local, remote, ref, live=live, redact=policy.redact)
        archive.holes = []
        yield archive


def verify(
    ctx: typer.Context,
    queue: SomeOfQueues,
    stream: StreamArg = "completions",
    expect_head: ExpectHead = None,
) -> None:
    """Re-read every commit and every segment against hashes, counts and chain. Exit 1 when something is not whole;
    until it is, nothing is trimmed on top of it.

    Examples:

      emq-ops archive verify orders completions

      emq-ops archive verify '*' '*' --output json
    """
    context = CommandContext.of(ctx)
    targets = archived_targets(context, [queue], stream)
    many = several([queue, stream], targets)
    if many and expect_head is not None:
        raise BadInputError("--expect-head is of one log", fix="name the queue and the stream")
    with context.local() as local, context.remote() as remote, QueueTurns(context, _VERIFIED, many=many) as turns:
        for ref in (ref_of(*target) for target in targets):
            with turns.turn(), bar(f"verify {ref}") as progress:
                found = emq_archive.upkeep.verify.verify(local, remote, ref, expect_head=expect_head, progress=progress)
                turns.add(found.as_row())
                if found.good and not found.commits:
                    say(f"emq-ops: the remote holds no archive of {ref}, so there was nothing to verify")
                for fault in found.faults:
                    say(f"emq-ops: {one_line(fault)}")
                if not found.good:
                    raise typer.Exit(EXIT_ERROR)


def job_text(job: str | None) -> str | None:
    """A job of the command line. Raises BadInputError for bytes that are no text."""
    try:
        (job or "").encode("utf-8")
    except UnicodeEncodeError:
        fix = "check where it was copied from"
        raise BadInputError("a job's id must be UTF-8 text", where="--job", fix=fix) from None
    return job


def point(text: str | None, *, last: bool) -> StreamId | None:
    """A place in a stream: ``<ms>-<seq>``, an ``EVT`` id, unix ms, or a time such as ``2026-01-31`` or
    ``2026-01-31T12:00:00Z`` (UTC where it says no zone). `last`: the highest id of that place. Raises BadInputError."""
    if text is None:
        return None
    if re.fullmatch(r"\d+-\d+", text):
        if re.fullmatch(r"(19[7-9]|20\d)\d-(0[1-9]|1[0-2])", text):
            raise BadInputError(f"'{text}' may be a month", fix=f"{text}-01, or unix ms for a stream id of 1970")
        return parse_id(text)
    if text.startswith("EVT"):
        return parse_id(ids.parse(text).stream_id)
    length = 1
    if re.fullmatch(r"\d{1,20}", text):
        ms = int(text)
    else:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise BadInputError(
                f"'{text}' is no place in a stream", fix="<ms>-<seq>, an EVT id, unix ms, or 2026-01-31T12:00:00Z"
            ) from None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        ms = int(moment.timestamp() * 1000)
        length = 86_400_000 if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text) else 1
    if not 0 <= ms <= MAX_STREAM_PART:
        raise BadInputError(f"'{text}' lies outside of what a stream id can say", fix="a time from 1970 on")
    return (ms + length - 1, MAX_STREAM_PART) if last else (ms, 0)


COMMANDS = (read, query, verify)

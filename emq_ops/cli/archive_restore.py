"""``emq-ops archive restore``: the local database from the remote alone, and whether the log's end is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

import emq_archive.upkeep.restore
from emq_archive.log.owners import owners
from emq_archive.model import StreamRef
from emq_archive.ports import Remote
from emq_archive.upkeep.end import Noted
from emq_archive.write.watermark import Watermark
from emq_ops.cli.archive_read import ExpectHead, ref_of, tell_holes
from emq_ops.cli.context import CommandContext
from emq_ops.cli.options import SomeOfQueues, StreamArg
from emq_ops.cli.output import say
from emq_ops.cli.progress import bar
from emq_ops.cli.queues import require_queue
from emq_ops.cli.values import now_ms
from emq_ops.ledger.ownership import Lineage
from emq_ops.protocol.errors import BadInputError, DamagedError, ServerError, UnreachableError, one_line
from emq_ops.protocol.globs import is_glob, matches
from emq_ops.protocol.keyspace import queue_name
from emq_ops.protocol.queue import Queue


def restore(
    ctx: typer.Context,
    queue: SomeOfQueues,
    stream: StreamArg = "completions",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count what would come; restore nothing.")] = False,
    expect_head: ExpectHead = None,
) -> None:
    """Make the local database anew from the remote alone. Run again, it goes on where it ended. Segments that are lost
    are named, and the rest comes (exit 1). QUEUE and STREAM may be globs, of what the remote holds.

    Whether commits are missing at the end of the log is told by what lies beside it and by the server, if that answers;
    for sure only --expect-head knows. It changes nothing about whose the archive is: `emq-ops state take-over` does.

    Examples:

      emq-ops archive restore orders completions --dry-run

      emq-ops archive restore '*' '*'
    """
    context = CommandContext.of(ctx)
    many = is_glob(queue) or is_glob(stream) or "," in queue + stream
    if many and expect_head is not None:
        raise BadInputError("--expect-head is of one log", fix="name the queue and the stream")
    if not many:
        require_queue(context, queue_name(queue))
    rows: list[dict[str, Any]] = []
    holes: list[str] = []
    foreign: set[str] = set()
    with context.local() as local, context.remote() as remote:
        refs = _held(remote, queue, stream) if many else [ref_of(queue, stream)]
        marks, asked = _watermarks(context, refs)
        for ref in refs:
            noted = Noted(expect_head, marks.get(ref))
            with bar(f"restore {ref}") as progress:
                done = emq_archive.upkeep.restore.restore(
                    local, remote, ref, now_ms=now_ms(), dry_run=dry_run, noted=noted, progress=progress
                )
            rows.append(done.as_row())
            holes += done.holes
            if done.state is not None and not dry_run:
                foreign.add(done.state)
    if foreign:
        _tell_foreign(context, foreign)
    if many:
        context.emit_rows(rows, ("queue", "stream", "segments", "records", "here", "lsn"))
    else:
        context.emit_one(rows[0])
    if not holes and expect_head is None:
        beside = "nothing beside it and nothing on the server" if asked else "nothing beside it (no server was asked)"
        say(
            f"emq-ops: whether a log ended behind its last commit, no chain can tell; {beside} speaks for it"
            + (
                ""
                if many
                else f"; to be sure: --expect-head with the head that a `verify` told (here {rows[0]['head']})"
            )
        )
    tell_holes(holes)


def _watermarks(context: CommandContext, refs: Sequence[StreamRef]) -> tuple[dict[StreamRef, str], bool]:
    """What the server knows as archived of each stream, and whether it could be asked."""
    found: dict[StreamRef, str] = {}
    if not context.names_server:
        return found, False
    try:
        with context.server("archive") as server:
            for ref in refs:
                if ref.kind == "stream":
                    cached, ours = Watermark(Queue(server, ref.queue), ref.stream, lambda _: True).read()
                    if evt := ours or cached:
                        found[ref] = evt
    except (UnreachableError, ServerError, DamagedError) as fault:
        say(f"emq-ops: the server was not asked how far the archive went: {one_line(fault.what)}")
        return {}, False
    return found, True


def _held(remote: Remote, queue: str, stream: str) -> list[StreamRef]:
    """What the remote holds that these names or globs take. Raises BadInputError where that is nothing."""
    queues, streams = queue.split(","), stream.split(",")
    found = [
        one.ref
        for one in owners(remote)
        if any(matches(part, one.ref.queue) for part in queues)
        and any(matches(part, one.ref.stream) for part in streams)
    ]
    if not found:
        raise BadInputError(f"the remote holds no archive that '{queue} {stream}' takes", where=remote.url)
    return sorted(found)


def _tell_foreign(context: CommandContext, states: set[str]) -> None:
    with context.ledger() as ledger:
        ours = Lineage(ledger).states
        for state in sorted(states - set(ours)):
            say(
                f"emq-ops: this archive belongs to state {state}, and the state here is {ledger.state}: "
                f"only to be read from here (if that one is gone: emq-ops state take-over {state})"
            )


COMMANDS: tuple[Any, ...] = (restore,)

"""``emq-ops archive compact|expire|adopt``: what changes the archive itself."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer

import emq_archive.upkeep.adopt
import emq_archive.upkeep.compact
from emq_archive.local.store import SqlStore
from emq_archive.model import FIRST_ID, Policy, StreamId, StreamRef, Writer
from emq_archive.ports import Remote
from emq_archive.source import StreamSource
from emq_archive.upkeep.adopt import after_watermark
from emq_archive.write.ship import LogShipper
from emq_archive.write.watermark import Watermark
from emq_ops.cli.archive_read import point, ref_of
from emq_ops.cli.asking import ask
from emq_ops.cli.context import CommandContext
from emq_ops.cli.many import QueueTurns, several
from emq_ops.cli.options import DryRun, QueueArg, SomeOfQueues, StreamArg, Yes
from emq_ops.cli.output import say
from emq_ops.cli.progress import bar
from emq_ops.cli.queues import require_queue
from emq_ops.cli.streams import archived_targets
from emq_ops.cli.values import duration_ms, now_ms
from emq_ops.config.policies import dead_policy
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.ownership import states_of
from emq_ops.passes.archive.stream import archiving, driver_policy
from emq_ops.passes.lease.holder import who
from emq_ops.passes.lease.owner import check_owner
from emq_ops.protocol.errors import BadInputError, DamagedError, UnreachableError
from emq_ops.protocol.queue import Queue

Grace = Annotated[
    str | None, typer.Option(help="How long objects stay that are out of the archive (24h).", metavar="DURATION")
]


_COMPACTED = ("queue", "stream", "merged", "segments", "expired", "records", "deleted", "waiting", "dry_run", "more")


@contextlib.contextmanager
def turns_of(
    context: CommandContext, queues: str, streams: str, columns: Sequence[str]
) -> Iterator[tuple[QueueTurns, list[StreamRef]]]:
    """The archived streams that two words of a command line take, and what their turns tell."""
    targets = archived_targets(context, [queues], streams)
    with QueueTurns(context, columns, many=several([queues, streams], targets)) as turns:
        yield turns, [ref_of(*target) for target in targets]


@contextlib.contextmanager
def upkeep_of(context: CommandContext, ref: StreamRef, *, destructive: bool = False) -> Iterator[LogShipper]:
    """Opens what changes an archive. Raises BadInputError for a queue that nothing names, and for a destructive verb on
    a protected one."""
    require_queue(context, ref.queue)
    if destructive and _policy(context, ref)[1]:
        raise BadInputError(f"queue {ref.queue} is protected", fix="take `protect: true` out of the config first")
    with context.ledger() as ledger, context.local() as local, context.remote() as remote:
        yield shipper_of(context, ref, ledger, local, remote)


def shipper_of(context: CommandContext, ref: StreamRef, ledger: Ledger, local: SqlStore, remote: Remote) -> LogShipper:
    """The writer of a stream's log, with what the config says of the stream. Raises ForeignQueueError where another
    state owns the queue, as far as the server can be asked."""
    if context.names_server:
        # Without a lease the log alone does not tell a copy of its owner's database.
        with contextlib.suppress(UnreachableError), context.server("archive") as server:
            check_owner(server, ref.queue, ledger)
    return LogShipper(local, remote, ref, _policy(context, ref)[0], Writer(ledger.state, 0, who(), states_of(ledger)))


def _policy(context: CommandContext, ref: StreamRef) -> tuple[Policy, bool]:
    """How a stream, or the dead jobs, are archived, and whether the queue is protected."""
    if ref.kind == "stream":
        policy = context.stream(ref.queue, ref.stream)
        return driver_policy(policy), policy.protect
    effective = context.layers.effective(ref.queue)
    if effective.dead is None:
        return Policy(), effective.protect
    return archiving(dead_policy(effective.dead, context.loaded.env).archiving), effective.protect


def compact(
    ctx: typer.Context,
    queue: SomeOfQueues,
    stream: StreamArg = "completions",
    grace: Grace = None,
    dry_run: DryRun = False,
) -> None:
    """Merge the small segments of each day. The old objects go after the grace, at the next run.

    Examples:

      emq-ops archive compact orders completions --dry-run

      emq-ops archive compact '*' '*' --grace 1h
    """
    context, keep = CommandContext.of(ctx), duration_ms(grace, "--grace")
    with turns_of(context, queue, stream, _COMPACTED) as (turns, refs):
        for ref in refs:
            with turns.turn(), upkeep_of(context, ref) as shipper, bar(f"compact {ref}") as progress:
                done = emq_archive.upkeep.compact.compact(
                    shipper, now_ms=now_ms(), grace_ms=keep, dry_run=dry_run, progress=progress
                )
                turns.add(done.as_row())


def expire(
    ctx: typer.Context,
    queue: SomeOfQueues,
    stream: StreamArg = "completions",
    older_than: Annotated[
        str | None, typer.Option(help="Age of a segment's newest record; else the policy's (365d).", metavar="DURATION")
    ] = None,
    grace: Grace = None,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Let old segments go for good. Only what a policy or --older-than says; nothing expires by itself.

    Records that are still in the stream are not archived again; a trim may take them. Each stream is asked about.

    Examples:

      emq-ops archive expire orders completions --older-than 365d --dry-run

      emq-ops archive expire 'mail-*' completions --older-than 90d --yes
    """
    context = CommandContext.of(ctx)
    age, keep = duration_ms(older_than, "--older-than"), duration_ms(grace, "--grace")
    with turns_of(context, queue, stream, _COMPACTED) as (turns, refs):
        for ref in refs:
            with turns.turn(), upkeep_of(context, ref, destructive=True) as shipper:
                done = emq_archive.upkeep.compact.expire(
                    shipper, now_ms=now_ms(), older_than_ms=age, grace_ms=keep, dry_run=True
                )
                if not dry_run and (not done.expired or ask(context, f"Expire {done.records} records of {ref}?", yes)):
                    head = _head(context, ref)
                    done = emq_archive.upkeep.compact.expire(
                        shipper, now_ms=now_ms(), older_than_ms=age, grace_ms=keep, head=head
                    )
                turns.add(done.as_row())


def _head(context: CommandContext, ref: StreamRef) -> StreamId | None:
    """What stands first in the stream (None: nothing); the lowest id of all where the server can't tell."""
    if not context.names_server:
        return FIRST_ID
    try:
        with context.server("archive") as server:
            return StreamSource(Queue(server, ref.queue), ref.stream).observe(None)[0].first
    except (UnreachableError, DamagedError):
        return FIRST_ID


def adopt(
    ctx: typer.Context,
    queue: QueueArg,
    stream: StreamArg = "completions",
    after: Annotated[
        str | None, typer.Option(help="Begin behind this id; else behind the watermark.", metavar="WHEN")
    ] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Begin behind the watermark that another archiver left: what stands before it counts as archived elsewhere.

    A trim may then take it, so be sure that the other archive holds it, and that the other archiver has stopped. It
    holds for every host of this archive. Of one stream.

    Examples:

      emq-ops archive adopt orders completions --dry-run

      emq-ops archive adopt orders completions --after 2026-01-31 --yes
    """
    context = CommandContext.of(ctx)
    ref = ref_of(queue, stream)
    bound = point(after, last=True)
    with context.server("archive") as server, upkeep_of(context, ref, destructive=True) as shipper:
        live = StreamSource(Queue(server, ref.queue), ref.stream)
        watermark = Watermark(live.queue, ref.stream, shipper.holds_evt)
        found = watermark.anothers()
        if bound is None:
            bound = after_watermark(found)
        upto = f"{bound[0]}-{bound[1]}"
        if not dry_run and not ask(context, f"Count records of {ref} up to {upto} as archived elsewhere?", yes):
            raise typer.Abort
        done = emq_archive.upkeep.adopt.adopt(shipper, live, bound, now_ms=now_ms(), dry_run=dry_run)
        if found is not None and not dry_run:
            watermark.adopt(found)
    if not dry_run:
        say(f"emq-ops: {ref}: {done.records} records up to {done.after} are the other archiver's")
    context.emit_one(done.as_row())


COMMANDS: tuple[Any, ...] = (compact, expire, adopt)

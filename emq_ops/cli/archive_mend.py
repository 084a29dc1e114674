"""``emq-ops archive reship|accept-loss``: what to do about objects that the remote lost."""

from __future__ import annotations

from typing import Annotated, Any

import typer

import emq_archive.upkeep.reship
from emq_archive.model import show_id
from emq_ops.cli.archive_read import ref_of
from emq_ops.cli.archive_upkeep import turns_of, upkeep_of
from emq_ops.cli.asking import ask
from emq_ops.cli.context import CommandContext
from emq_ops.cli.exits import EXIT_ERROR
from emq_ops.cli.options import DryRun, QueueArg, SomeOfQueues, StreamArg, Yes
from emq_ops.cli.output import say
from emq_ops.cli.progress import bar
from emq_ops.cli.values import now_ms
from emq_ops.protocol.errors import one_line

_RESHIPPED = ("queue", "stream", "segments", "records", "commits", "left", "dry_run")


def reship(
    ctx: typer.Context,
    queue: SomeOfQueues,
    stream: StreamArg = "completions",
    deep: Annotated[bool, typer.Option("--deep", help="Read every segment; else only its size is looked at.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Ship again, from intact local rows, what the remote lost: segments, and commits of the log. The log says so.

    Nothing local was pruned meanwhile: pruning waits while the archive is in doubt. Run `archive verify` afterwards.
    Exit 1 when something is lost that is not here either.

    Examples:

      emq-ops archive reship orders completions --dry-run

      emq-ops archive reship '*' '*' --deep
    """
    context = CommandContext.of(ctx)
    with turns_of(context, queue, stream, _RESHIPPED) as (turns, refs):
        for ref in refs:
            with turns.turn(), upkeep_of(context, ref) as shipper, bar(f"reship {ref}") as progress:
                done = emq_archive.upkeep.reship.reship(
                    shipper, now_ms=now_ms(), deep=deep, dry_run=dry_run, progress=progress
                )
                turns.add(done.as_row())
                for key in map(one_line, done.left):
                    lost = "is lost, and not whole in the local database"
                    say(f"emq-ops: {key} {lost} (archive accept-loss, if it is for good)")
                if done.left:
                    raise typer.Exit(EXIT_ERROR)


def accept_loss(
    ctx: typer.Context,
    queue: QueueArg,
    stream: StreamArg,
    segment: Annotated[str, typer.Argument(help="The segment's key, as `archive verify` names it.", metavar="SEGMENT")],
    yes: Yes = False,
) -> None:
    """Write into the log that a segment is lost for good, so that the archive goes on without it.

    Refused while the segment is whole in the remote, or its records are in the local database.

    Examples:

      emq-ops archive accept-loss orders completions queue=orders/stream=completions/x.parquet

      emq-ops archive accept-loss orders completions queue=orders/stream=completions/x.parquet --yes
    """
    context = CommandContext.of(ctx)
    ref = ref_of(queue, stream)
    with upkeep_of(context, ref, destructive=True) as shipper:
        if not ask(context, f"Give up segment {segment} of {ref} for lost?", yes):
            raise typer.Abort
        gone = emq_archive.upkeep.reship.accept_loss(shipper, segment, now_ms=now_ms())
    ends = {"first": show_id(gone.first), "last": show_id(gone.last)}
    context.emit_one({"queue": ref.queue, "stream": ref.stream, "segment": gone.key, "records": gone.records, **ends})


COMMANDS: tuple[Any, ...] = (reship, accept_loss)

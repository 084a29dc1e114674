"""``emq-ops archive``: fold streams, see how far they are, bring jobs back."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import typer

from emq_archive.local.store import SqlStore
from emq_archive.model import StreamRef
from emq_ops.cli import archive_erase, archive_mend, archive_read, archive_rehydrate, archive_restore, archive_upkeep
from emq_ops.cli.archive_read import ref_of
from emq_ops.cli.context import CommandContext
from emq_ops.cli.exits import EXIT_ERROR
from emq_ops.cli.options import DryRun, SomeOfQueues, StreamArg, new_app
from emq_ops.cli.output import say
from emq_ops.cli.passing import ByHand, run_by_hand, with_given
from emq_ops.cli.queues import require_queue
from emq_ops.cli.streams import alone, archived_targets
from emq_ops.cli.values import duration_ms, size_bytes
from emq_ops.passes.archive.declared import ARCHIVE
from emq_ops.passes.archive.remote_status import head_of, unknown_here
from emq_ops.passes.archive.status import status_of
from emq_ops.passes.frame.order import Order
from emq_ops.protocol.errors import BadInputError, EmqError, one_line

app = new_app("Keep what streams and dead sets let go: fold, look, read, prove, query, bring back.")


@app.command()
def fold(
    ctx: typer.Context,
    queue: SomeOfQueues,
    stream: StreamArg = "completions",
    keep: Annotated[int | None, typer.Option(help="Exactly so many records stay in Valkey.", min=0)] = None,
    max_age: Annotated[
        str | None, typer.Option(help="Records older than this leave Valkey (30d).", metavar="DURATION")
    ] = None,
    groups: Annotated[str | None, typer.Option(help="respect (default) or ignore consumer groups.")] = None,
    trim_after: Annotated[str | None, typer.Option(help="Trim what is proven in the remote, or local.")] = None,
    segment: Annotated[str | None, typer.Option(help="Size of a full segment (64MiB).", metavar="SIZE")] = None,
    max_removals: Annotated[int | None, typer.Option(help="Trim nothing if more would go.", min=0)] = None,
    timeout: Annotated[
        str | None, typer.Option(help="End in time; the next run goes on (5m).", metavar="DURATION")
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Archive streams once: read each to its top, ship and prove it, then trim all that the policy lets go.

    The policy is the config's, with the flags over it; without either nothing is trimmed. Exit 1 when something could
    not be stored or trimmed.

    Examples:

      emq-ops archive fold orders completions

      emq-ops archive fold 'mail-*,orders' '*' --dry-run
    """
    context, applied = CommandContext.of(ctx), keep is None and max_age is None
    age_ms = duration_ms(max_age, "--max-age")
    segment_bytes = None if segment is None else size_bytes(segment, "--segment")

    def order_of(queue: str, stream: str) -> Order:
        policy = context.stream(queue, stream)
        if not applied:
            policy = replace(policy, keep=keep, max_age_ms=age_ms)
        archiving = with_given(policy.archiving, {"trim_after": trim_after, "segment_bytes": segment_bytes})
        policy = with_given(policy, {"groups": groups, "max_removals": max_removals, "archiving": archiving})
        if policy.archiving.trim_after == "local" and context.wiring.state_url.startswith("postgres"):
            fix = "remote, since the state is PostgreSQL and hosts may be several"
            raise BadInputError("trim_after is local", where="--trim-after", fix=fix)
        return Order(queue, policy, stream, applied=applied, lease_ms=context.stalled(queue).lease_ms)

    run_by_hand(context, ARCHIVE, [queue], ByHand(order_of, timeout, dry_run), stream)


STATUS = ("queue", "stream", "folded_to", "trimmed_to", "lag_records", "lag_seconds", "unshipped", "last_commit_ms")


@app.command()
def status(
    ctx: typer.Context,
    queue: SomeOfQueues,
    stream: Annotated[
        str | None, typer.Argument(help="The stream or a glob, 'dead' for dead jobs; all of the archive without.")
    ] = None,
) -> None:
    """How far the archive is: both frontiers, lag, what is not shipped, the last commit, sizes, and whether the store
    has that commit. Exit 1 where it has not, or holds an archive that the local database knows nothing of.

    Examples:

      emq-ops archive status orders

      emq-ops archive status '*' completions
    """
    context = CommandContext.of(ctx)
    with context.server("archive") as server, context.local_for_a_look() as local:
        named = alone([queue], stream or "completions")
        if named is not None and stream is None:
            refs = local.streams(named[0])
            require_queue(context, named[0], server, streams=[ref.stream for ref in refs])
        else:
            refs = [ref_of(*target) for target in archived_targets(context, [queue], stream or "*")]
        names = [named[0]] if named is not None else sorted({ref.queue for ref in refs})
        rows = [status_of(server, local, ref) for ref in refs]
        told = [line for name in names for line in _beside_the_store(context, local, name, refs, rows)]
    if named is not None and stream is not None and context.output in ("json", "table"):
        context.emit_one(rows[0])
    else:
        context.emit_rows(rows, STATUS)
    for line in told:
        say(f"emq-ops: {one_line(line)}")
    if told:
        raise typer.Exit(EXIT_ERROR)


def _beside_the_store(
    context: CommandContext, local: SqlStore, queue: str, refs: list[StreamRef], rows: list[dict[str, Any]]
) -> list[str]:
    """Adds to each row of the queue whether the store has the newest commit; a line for each thing that is not as it
    should be."""
    told: list[str] = []
    if context.wiring.archive_remote is None:
        return told
    try:
        with context.remote() as remote:
            for ref, row in ((ref, row) for ref, row in zip(refs, rows, strict=True) if ref.queue == queue):
                row["remote_head"] = head_of(local, remote, ref)
                if row["remote_head"] == "missing":
                    told.append(f"{ref}: commit {row['last_lsn']} is not in {remote.url}: emq-ops archive verify")
            for ref, records in unknown_here(local, remote, queue).items():
                told.append(
                    f"{ref}: the remote holds {records} records, and the local database knows nothing of them: "
                    f"emq-ops archive restore {queue} {ref.stream} (both may be globs)"
                )
    except EmqError as fault:
        told.append(f"the object store can't be looked at: {fault}")
    return told


for _command in (
    *archive_read.COMMANDS,
    *archive_restore.COMMANDS,
    *archive_upkeep.COMMANDS,
    *archive_mend.COMMANDS,
    *archive_erase.COMMANDS,
    *archive_rehydrate.COMMANDS,
):
    app.command()(_command)

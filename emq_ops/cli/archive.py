"""``emq-ops archive``: fold streams, see how far they are, bring jobs back."""

from __future__ import annotations

from typing import Annotated

import typer

from emq_archive.deadline import NEVER, Deadline
from emq_ops.cli import archive_read, archive_rehydrate, archive_upkeep
from emq_ops.cli.archive_parts import Parts, scalar, with_flags
from emq_ops.cli.archive_read import ref_of
from emq_ops.cli.context import globals_of, new_app
from emq_ops.cli.exits import EXIT_ERROR
from emq_ops.cli.output import emit_one, emit_rows, say
from emq_ops.cli.passing import show, warn_of_absence
from emq_ops.cli.progress import bar
from emq_ops.ledger.ledger import open_ledger
from emq_ops.passes.archive.status import status_of
from emq_ops.passes.archive.stream import StreamArchive
from emq_ops.passes.frame.once import run_once
from emq_ops.passes.lease.holder import who
from emq_ops.policy.models import as_row
from emq_ops.policy.scalars import parse_duration
from emq_ops.protocol.errors import BadInputError, EmqError
from emq_ops.protocol.keyspace import queue_name, stream_name

app = new_app("Keep what streams and dead sets let go: fold, look, read, prove, query, bring back.")

QueueArg = Annotated[str, typer.Argument(help="The queue.", metavar="QUEUE")]
StreamArg = Annotated[str, typer.Argument(help="The stream.", metavar="STREAM")]


@app.command()
def fold(
    ctx: typer.Context,
    queue: QueueArg,
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
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done; change nothing.")] = False,
) -> None:
    """Archive a stream once: read it to its top, ship and prove it, then trim all that the policy lets go.

    The policy is the config's, with the flags over it; without either nothing is trimmed. Exit 1 when something could
    not be stored or trimmed.
    """
    options = globals_of(ctx)
    queue, stream = queue_name(queue), stream_name(stream)
    parts = Parts.of(options)
    policy = with_flags(
        parts.stream_policy(queue, stream),
        keep=keep,
        max_age=max_age,
        groups=groups,
        trim_after=trim_after,
        segment=segment,
        max_removals=max_removals,
    )
    if policy.archiving.trim_after == "local" and parts.wiring.state_url.startswith("postgres"):
        fix = "remote, since the state is PostgreSQL and hosts may be several"
        raise BadInputError("trim_after is local", where="--trim-after", fix=fix)
    deadline = NEVER if timeout is None else Deadline.after(scalar(parse_duration, timeout, "--timeout") / 1000)
    opened = parts.local_for_a_look() if dry_run else parts.local()
    with parts.server("archive") as server, opened as local, parts.remote() as remote:
        warn_of_absence(server, queue, parts.loaded, stream)
        archive = StreamArchive(server, queue, stream, policy, local, remote)
        if dry_run:
            show("fold", {**archive.preview().as_row(), "status": "dry"}, options.output)
            return
        with open_ledger(parts.wiring.state_url) as ledger, bar(f"{queue}/{stream}") as progress:
            try:
                report = run_once(
                    server,
                    ledger,
                    queue,
                    "archive",
                    lambda fence: archive.run(fence, who(), deadline, force=True, progress=progress),
                    {"stream": stream, "policy": as_row(policy)},
                )
            except EmqError:
                if archive.report.folded or archive.report.shipped or archive.report.trimmed:
                    show("fold", archive.report.as_row(), options.output)
                raise
    show("fold", report, options.output)
    for refusal in report["refused"]:
        say(f"emq-ops: {queue}/{stream}: {refusal}")
    for odd in report["unstorable"]:
        say(f"emq-ops: {queue}/{stream}: record {odd['id']} could not be stored and stays: {odd['reason']}")
    if report["refused"] or report["unstorable"] or report["lag_records"]:
        raise typer.Exit(EXIT_ERROR)


STATUS = ("queue", "stream", "folded_to", "trimmed_to", "lag_records", "lag_seconds", "unshipped", "last_commit_ms")


@app.command()
def status(
    ctx: typer.Context,
    queue: QueueArg,
    stream: Annotated[
        str | None, typer.Argument(help="The stream, 'dead' for dead jobs; all of the archive without.")
    ] = None,
) -> None:
    """How far the archive is: both frontiers, lag, what is not shipped, the last commit, sizes."""
    options = globals_of(ctx)
    queue = queue_name(queue)
    parts = Parts.of(options)
    with parts.server("archive") as server, parts.local_for_a_look() as local:
        refs = [ref_of(queue, stream)] if stream is not None else local.streams()
        warn_of_absence(server, queue, parts.loaded, *(ref.stream for ref in refs if ref.queue == queue))
        rows = [status_of(server, local, ref) for ref in refs if ref.queue == queue]
    if stream is not None and options.output in ("json", "table"):
        emit_one(rows[0], options.output)
    else:
        emit_rows(rows, options.output, STATUS)


for _command in (*archive_read.COMMANDS, *archive_upkeep.COMMANDS, *archive_rehydrate.COMMANDS):
    app.command()(_command)

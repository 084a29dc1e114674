"""``emq-ops archive rehydrate``: jobs of selected records, back."""

from __future__ import annotations

from typing import Annotated

import typer

from emq_archive.model import DEAD
from emq_archive.read.archive import Archive
from emq_ops.audit.archived import Archived
from emq_ops.cli.archive_read import point, ref_of
from emq_ops.cli.audit_parts import show_act
from emq_ops.cli.context import CommandContext
from emq_ops.cli.exits import EXIT_ERROR
from emq_ops.cli.options import ActRate, ActWhy, QueueArg, StreamArg
from emq_ops.cli.output import say
from emq_ops.cli.queues import require_queue
from emq_ops.passes.acts.declared import RATE
from emq_ops.passes.acts.options import ActOptions
from emq_ops.passes.acts.undo import rehydrate_jobs
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.ids import is_valid


def rehydrate(
    ctx: typer.Context,
    queue: QueueArg,
    stream: StreamArg = DEAD,
    jobs: Annotated[list[str] | None, typer.Option("--job", help="This job; repeatable.", metavar="JOB")] = None,
    since: Annotated[
        str | None, typer.Option("--from", help="First id, EVT id, unix ms or time.", metavar="WHEN")
    ] = None,
    until: Annotated[str | None, typer.Option("--to", help="Last one, inclusive.", metavar="WHEN")] = None,
    limit: Annotated[int | None, typer.Option(help="At most so many records.", min=1)] = None,
    requeue: Annotated[bool, typer.Option("--requeue", help="They wait again, instead of being dead.")] = False,
    rate: ActRate = RATE,
    why: ActWhy = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the jobs; change nothing.")] = False,
) -> None:
    """Bring back the jobs of selected records, as they were when they were archived dead.

    Say which: --job, --from, --to. Without --requeue they come back dead, and the next trim may take them again. Exit 1
    when none came back.

    Examples:

      emq-ops archive rehydrate orders --job JOB0SS8QFjgi3i --requeue

      emq-ops archive rehydrate orders dead --from 2026-01-31 --limit 100 --dry-run
    """
    context, ref = CommandContext.of(ctx), ref_of(queue, stream)
    if not jobs and since is None and until is None and limit is None:
        raise BadInputError("nothing is selected", fix="--job, --from, --to or --limit; never everything by mistake")
    start, end = point(since, last=False), point(until, last=True)
    require_queue(context, ref.queue)
    with context.local_for_a_look() as local, context.remote() as remote:
        archive = Archive(local, remote, ref)
        wanted: dict[str, None] = {}
        selected: list[str | None] = list(jobs) if jobs else [None]
        for job in selected:
            for record in archive.read(start, end, job=job, limit=limit):
                if record.job is not None and record.job.startswith("JOB") and is_valid(record.job):
                    wanted[record.job] = None
        if not wanted:
            say(f"emq-ops: {ref}: no archived record of that selection names a job")
            raise typer.Exit(EXIT_ERROR)
        if dry_run:
            context.emit_rows([{"queue": ref.queue, "job": job} for job in wanted], ("queue", "job"))
            return
        with context.ledger() as ledger, context.server("rehydrate") as server:
            report = rehydrate_jobs(
                server,
                ref.queue,
                list(wanted),
                ledger,
                find=Archived(local, remote).snapshot,
                requeue=requeue,
                options=ActOptions(rate=rate, why=why),
            )
    show_act(context, report)
    if not report.done:
        raise typer.Exit(EXIT_ERROR)


COMMANDS = (rehydrate,)

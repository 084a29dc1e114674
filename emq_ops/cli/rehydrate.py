"""``emq-ops rehydrate``: bring named jobs back."""

from __future__ import annotations

from typing import Annotated

import typer

from emq_ops.cli.audit_parts import archive_of, show_act
from emq_ops.cli.context import CommandContext
from emq_ops.cli.exits import EXIT_ERROR
from emq_ops.cli.options import ActRate, ActWhy, QueueArg, YesAnyway, new_app
from emq_ops.cli.output import say
from emq_ops.cli.progress import bar
from emq_ops.cli.queues import require_queue
from emq_ops.passes.acts.declared import RATE
from emq_ops.passes.acts.options import ActOptions
from emq_ops.passes.acts.undo import preview_rehydrate, rehydrate_jobs
from emq_ops.protocol.keyspace import queue_name

app = new_app()


@app.command()
def rehydrate(
    ctx: typer.Context,
    queue: QueueArg,
    jobs: Annotated[list[str], typer.Argument(help="Ids of jobs that were removed.", metavar="JOB")],
    requeue: Annotated[bool, typer.Option("--requeue", help="They wait again, instead of being dead.")] = False,
    rate: ActRate = RATE,
    why: ActWhy = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would come back.")] = False,
    yes: YesAnyway = False,
) -> None:
    """Bring removed jobs back from the ledger or the archive, as they were when they were last dead.

    Examples:

      emq-ops rehydrate orders JOB0SS8QFjgi3i

      emq-ops rehydrate orders JOB0SS8QFjgi3i --requeue --dry-run
    """
    context = CommandContext.of(ctx)
    name = queue_name(queue)
    with context.ledger() as ledger, context.server("rehydrate") as server, archive_of(context) as archive:
        require_queue(context, name, server)
        find = archive.snapshot if archive else None
        if dry_run:
            report = preview_rehydrate(server, name, jobs, ledger, find=find)
        else:
            with bar(f"rehydrate {name}") as progress:
                acting = ActOptions(rate=rate, why=why, progress=progress)
                report = rehydrate_jobs(server, name, jobs, ledger, find=find, requeue=requeue, options=acting)
    show_act(context, report)
    if dry_run:
        say("nothing was changed")
    elif not report.done:
        raise typer.Exit(EXIT_ERROR)

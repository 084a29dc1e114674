"""``emq-ops undo``: bring back what a run removed."""

from __future__ import annotations

import contextlib
from typing import Annotated

import typer

from emq_ops.cli.audit_parts import archive_of, show_act
from emq_ops.cli.context import CommandContext
from emq_ops.cli.exits import EXIT_ERROR
from emq_ops.cli.options import new_app
from emq_ops.cli.output import say
from emq_ops.ledger import runs
from emq_ops.passes.acts.declared import RATE
from emq_ops.passes.acts.options import ActOptions
from emq_ops.passes.acts.undo import TRIM, preview_undo, undo_run

app = new_app()


@app.command()
def undo(
    ctx: typer.Context,
    run: Annotated[str, typer.Argument(help="The run that removed them, RUN...", metavar="RUN")],
    rate: Annotated[int, typer.Option(help="At most so many jobs a second.", min=1)] = RATE,
    why: Annotated[str, typer.Option(help="Recorded with it.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many would come back.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="As everywhere; nothing is asked here.")] = False,
) -> None:
    """Bring back, whole, every job that a removal or a trim took away.

    They come back dead, byte for byte; deduplication keys and locks do not. Killed half-way, run it again.
    """
    context = CommandContext.of(ctx)
    with context.ledger() as ledger:
        if dry_run:
            show_act(context, preview_undo(ledger, run))
            say("nothing was changed")
            return
        wants = runs.get(ledger, run).kind == TRIM  # what an act took away is with the act
        with (
            context.server("undo") as server,
            archive_of(context) if wants else contextlib.nullcontext() as archive,
        ):
            find = archive.snapshot if archive else None
            report = undo_run(server, run, ledger, find=find, options=ActOptions(rate=rate, why=why))
    show_act(context, report)
    if report.selected and not report.done:
        raise typer.Exit(EXIT_ERROR)

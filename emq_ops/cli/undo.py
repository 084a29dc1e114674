"""``emq-ops undo``: bring back what a run removed."""

from __future__ import annotations

import contextlib
from typing import Annotated

import typer

from emq_ops.cli.audit_parts import archive_of, show_act
from emq_ops.cli.context import CommandContext
from emq_ops.cli.exits import EXIT_ERROR
from emq_ops.cli.options import ActRate, ActWhy, YesAnyway, new_app
from emq_ops.cli.output import say
from emq_ops.ledger import runs
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.acts.batch import parts_of, undo_all
from emq_ops.passes.acts.declared import RATE
from emq_ops.passes.acts.options import ActOptions
from emq_ops.passes.acts.undo import TRIM, preview_undo
from emq_ops.protocol import ids
from emq_ops.protocol.errors import BadInputError

app = new_app()


@app.command()
def undo(
    ctx: typer.Context,
    run: Annotated[str, typer.Argument(help="The run that removed them, RUN...", metavar="RUN")],
    rate: ActRate = RATE,
    why: ActWhy = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many would come back.")] = False,
    yes: YesAnyway = False,
) -> None:
    """Take back what a run did: removed jobs come back, whole; requeued ones that still wait are dead again.

    What a removal, a trim or a drain took away comes back to where it stood, byte for byte; deduplication keys and
    locks do not. A payload that was edited is as it was. A run over several queues is taken back in all of them. Killed
    half-way, run it again.

    Examples:

      emq-ops undo RUN0SS8QFjgi3i --dry-run

      emq-ops undo RUN0SS8QFjgi3i --why 'it was the wrong queue'
    """
    context = CommandContext.of(ctx)
    with context.ledger() as ledger:
        _require_run(ledger, run)
        if dry_run:
            for part in parts_of(ledger, run):
                show_act(context, preview_undo(ledger, part))
            say("nothing was changed")
            return
        wants = runs.get(ledger, run).kind == TRIM  # what an act took away is with the act
        with (
            context.server("undo") as server,
            archive_of(context) if wants else contextlib.nullcontext() as archive,
        ):
            find = archive.snapshot if archive else None
            reports = undo_all(server, run, ledger, find, ActOptions(rate=rate, why=why))
    for report in reports:
        show_act(context, report)
    selected, done = sum(report.selected for report in reports), sum(report.done for report in reports)
    if len(reports) > 1:
        say(f"{done} of {selected} taken back in {len(reports)} queues")
    if not selected:
        say(f"emq-ops: nothing to bring back: what {run} took away is back already, or it took nothing")
    if selected and not done:
        raise typer.Exit(EXIT_ERROR)


def _require_run(ledger: Ledger, run: str) -> None:
    """Raises BadInputError for a run that this state has not, with the way back of what a lost state's run took."""
    if not ids.is_valid(run):
        runs.get(ledger, run)  # raises, with the nearest
    began = ids.parse(ids.require(run, "RUN")).unix_ms
    if runs.find(ledger, run) is None:
        near = runs.near(ledger, run)
        raise BadInputError(
            f"no run {run}; it began {ids.at(began):%Y-%m-%dT%H:%M:%SZ}",
            where=ledger.where,
            fix=f"{near or 'see `emq-ops runs ls`'}; if it was a run of a state that is lost, the jobs that it "
            f"took away are in the archive: `emq-ops archive rehydrate QUEUE dead --from {began}` "
            "(add --job JOB, or --to)",
        )

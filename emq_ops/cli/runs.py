"""``emq-ops runs``: what passes did."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from emq_ops.cli.completion.remembered import remember
from emq_ops.cli.context import CommandContext
from emq_ops.cli.options import SomeQueues, new_app
from emq_ops.cli.output import tell_old
from emq_ops.cli.queues import chosen
from emq_ops.cli.report_tables import format_run
from emq_ops.ledger import deaths, runs
from emq_ops.ledger.runs import Run
from emq_ops.protocol.globs import escaped
from emq_ops.protocol.keyspace import queue_name

app = new_app("What passes did: when, on which queue, by whom, how much.")

COLUMNS = ("id", "kind", "queue", "status", "started_ms", "took_ms", "trigger", "holder", "counts", "error")


@app.command()
def ls(
    ctx: typer.Context,
    queues: SomeQueues = None,
    queue: Annotated[str | None, typer.Option("--queue", help="Of this queue.", hidden=True)] = None,
    kind: Annotated[str | None, typer.Option(help="sweep, trim, archive, idle ...")] = None,
    limit: Annotated[int, typer.Option(help="How many.", min=1)] = 50,
    idle: Annotated[bool, typer.Option("--idle", help="Also the rows that count passes which found nothing.")] = False,
) -> None:
    """List runs, the newest first.

    Examples:

      emq-ops runs ls orders --kind sweep

      emq-ops runs ls 'mail-*' --limit 10 --output json
    """
    context, selectors = CommandContext.of(ctx), list(queues or ())
    if queue is not None:
        tell_old("--queue QUEUE", "emq-ops runs ls QUEUE")
        selectors.append(escaped(queue_name(queue)))
    with context.ledger() as ledger:
        names = (
            chosen(context, selectors, {*runs.queues_with_runs(ledger), *context.layers.literals}) if selectors else ()
        )
        found = runs.latest(ledger, queues=names, kind=kind, limit=limit, idle=idle)
    remember("runs", (run.id for run in found))
    context.emit_rows([_told(run) for run in found], COLUMNS)


def _told(run: Run) -> dict[str, Any]:
    """A run as a row, with how long it took (ms); idle runs are counted together, over a time of their own."""
    took = None if run.ended_ms is None or run.status == runs.IDLE else max(0, run.ended_ms - run.started_ms)
    return {**run.as_row(), "took_ms": took}


@app.command()
def show(ctx: typer.Context, run: Annotated[str, typer.Argument(help="Its id, RUN...")]) -> None:
    """Show one run, with the jobs that it dead-lettered.

    Examples:

      emq-ops runs show RUN0SS8QFjgi3i

      emq-ops runs show RUN0SS8QFjgi3i --output json
    """
    context = CommandContext.of(ctx)
    with context.ledger() as ledger:
        found = runs.get(ledger, run)
        killed = [death.job for death in deaths.iterate(ledger, run=found.id, with_rows=False)]
    row = {**_told(found), "killed": killed}
    context.emit_one(format_run(row) if context.output == "table" else row)

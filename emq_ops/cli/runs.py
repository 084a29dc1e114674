"""``emq-ops runs``: what passes did."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from emq_ops.cli.completion.remembered import remember
from emq_ops.cli.context import CommandContext
from emq_ops.cli.options import new_app
from emq_ops.cli.queues import require_queue
from emq_ops.cli.report_tables import format_run
from emq_ops.ledger import deaths, runs
from emq_ops.ledger.runs import Run
from emq_ops.protocol.keyspace import queue_name

app = new_app("What passes did: when, on which queue, by whom, how much.")

COLUMNS = ("id", "kind", "queue", "status", "started_ms", "took_ms", "trigger", "holder", "counts", "error")


@app.command()
def ls(
    ctx: typer.Context,
    queue: Annotated[str | None, typer.Option("--queue", help="Of this queue.")] = None,
    kind: Annotated[str | None, typer.Option(help="sweep, trim, archive, idle ...")] = None,
    limit: Annotated[int, typer.Option(help="How many.", min=1)] = 50,
    idle: Annotated[bool, typer.Option("--idle", help="Also the rows that count passes which found nothing.")] = False,
) -> None:
    """List runs, the newest first."""
    context = CommandContext.of(ctx)
    with context.ledger() as ledger:
        found = runs.latest(
            ledger, queue=None if queue is None else queue_name(queue), kind=kind, limit=limit, idle=idle
        )
    if queue is not None and not found:
        require_queue(context, queue)
    remember("runs", (run.id for run in found))
    context.emit_rows([_told(run) for run in found], COLUMNS)


def _told(run: Run) -> dict[str, Any]:
    """A run as a row, with how long it took (ms); idle runs are counted together, over a time of their own."""
    took = None if run.ended_ms is None or run.status == runs.IDLE else max(0, run.ended_ms - run.started_ms)
    return {**run.as_row(), "took_ms": took}


@app.command()
def show(ctx: typer.Context, run: Annotated[str, typer.Argument(help="Its id, RUN...")]) -> None:
    """Show one run, with the jobs that it dead-lettered."""
    context = CommandContext.of(ctx)
    with context.ledger() as ledger:
        found = runs.get(ledger, run)
        killed = [death.job for death in deaths.iterate(ledger, run=found.id, with_rows=False)]
    row = {**_told(found), "killed": killed}
    context.emit_one(format_run(row) if context.output == "table" else row)

"""``emq-ops ps``: who leads what, and how its tasks do."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from emq_ops.cli.context import globals_of, new_app
from emq_ops.cli.output import emit_rows, say
from emq_ops.cli.settings import loaded_of, wiring_of
from emq_ops.daemon.status import daemon_rows, task_rows
from emq_ops.deploy import revisions
from emq_ops.ledger import holds
from emq_ops.ledger.ledger import open_ledger

app = new_app()
TASKS = (
    *("queue", "task", "leader", "every", "last", "next"),
    *("late_ms", "overdue_ms", "runs", "missed", "failures", "error"),
)
DAEMONS = ("daemon", "since", "seen", "revision", "leads", "waiting", "running", "away")


@app.command()
def ps(
    ctx: typer.Context,
    daemons: Annotated[bool, typer.Option("--daemons", help="The daemons instead of the tasks.")] = False,
) -> None:
    """Show each task: its leader, last and next run, how late, failures in a row; or the living daemons."""
    options = globals_of(ctx)
    loaded = loaded_of(options)
    wiring = wiring_of(options, loaded)
    with open_ledger(wiring.state_url) as ledger:
        if daemons:
            emit_rows(daemon_rows(ledger), options.output, DAEMONS)
            return
        revision = revisions.current(ledger)
        if revision is None:
            say("emq-ops: nothing was applied yet (emq-ops apply)")
            emit_rows([], options.output, TASKS)
            return
        where = wiring if loaded.sources or options.url is not None else revision.document.wiring(os.environ)
        with where.connect("ps") as server:
            emit_rows(task_rows(server, ledger, revision, where.env), options.output, TASKS)
            for held in holds.all_holds(ledger):
                left = held.until_ms - server.now_ms(held.queue)
                if left > 0:
                    why = f" ({held.why})" if held.why else ""
                    say(f"emq-ops: {held.queue}: held by {held.holder} for {left // 60_000 + 1} more minutes{why}")

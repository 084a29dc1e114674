"""``emq-ops ps``: who leads what, and how its tasks do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.options import new_app
from emq_ops.cli.output import Row, emit_rows, say
from emq_ops.config.wiring import Wiring
from emq_ops.daemon.restrictions import FIELDS, ActiveRestriction, active_restrictions, asked_for, format_span
from emq_ops.daemon.status import daemon_rows, now_of, task_rows
from emq_ops.deploy.store import revisions
from emq_ops.protocol.errors import EmqError, UnreachableError
from emq_ops.protocol.server import Server

app = new_app()
TASKS = (
    *("queue", "task", "leader", "every", "last", "next"),
    *("late_ms", "overdue_ms", "runs", "missed", "failures", "error"),
)
SHORT = ("held", "maintenance")
"""Columns of a table, where there is something to tell in them."""
DAEMONS = ("daemon", "since", "seen", "revision", "leads", "waiting", "running", "away", "behind", "longest_s")


@app.command()
def ps(
    ctx: typer.Context,
    daemons: Annotated[bool, typer.Option("--daemons", help="The daemons instead of the tasks.")] = False,
) -> None:
    """Show each task: its leader, last and next run, how late, failures in a row; or the living daemons.

    While the server is away what the state knows is shown, without leaders, and a line says so (exit 0).

    Examples:

      emq-ops ps

      emq-ops ps --daemons
    """
    context = CommandContext.of(ctx)
    wiring = context.wiring
    with context.ledger() as ledger:
        if daemons:
            rows = daemon_rows(ledger)
            context.emit_rows(rows, DAEMONS)
            if not rows:
                say("emq-ops: no daemon runs (emq-ops up)")
            return
        revision = revisions.current(ledger)
        if revision is None:
            say("emq-ops: nothing was applied yet (emq-ops apply)")
            context.emit_rows([], TASKS)
            if any(asked_for(ledger)):
                with _server(wiring) as server:
                    _tell(active_restrictions(ledger, None, wiring.env, now_of(server)))
            return
        where = context.server_wiring(revision)
        with _server(where) as server:
            faults: dict[str, EmqError] = {}
            rows = task_rows(server, ledger, revision, where.env, faults=faults)
            stands = active_restrictions(ledger, revision.document, where.env, now_of(server))
        wedged = ("wedged",) if any(row["wedged"] for row in rows) else ()
        if context.output == "table":
            emit_rows([_short(row) for row in rows], "table", TASKS + tuple(k for k in SHORT if _has(rows, k)) + wedged)
        else:
            context.emit_rows(rows, TASKS + FIELDS + wedged)
        for queue, fault in faults.items():
            say(f"emq-ops: {queue}: does not run in this environment: {fault}")
        if not daemon_rows(ledger):
            say(f"emq-ops: {_nobody(sorted({row['leader'] for row in rows if row['leader']}))}")
        queues = {row["queue"] for row in rows}
        _tell([one for one in stands if not any(one.covers(queue) for queue in queues)])


@contextlib.contextmanager
def _server(where: Wiring) -> Iterator[Server | None]:
    """The server; None where it does not answer, which is told."""
    with contextlib.ExitStack() as stack:
        server = None
        try:
            server = stack.enter_context(where.connect("ps"))
            server.read("TIME")
        except UnreachableError as fault:
            server = None
            say(f"emq-ops: {fault}: leaders are not known; the rest is what the state knows")
        yield server


def _nobody(leaders: list[str]) -> str:
    """Why no daemon is known to the state. `leaders`: who holds a lease all the same."""
    if not leaders:
        return "no daemon runs: nothing is done by itself (emq-ops up)"
    who = leaders[0] + (f" and {len(leaders) - 1} more" if len(leaders) > 1 else "")
    told = "no daemon wrote into the state lately, though leases are held"
    return f"{told} ({who}): it can't write, or just died; see its log or /healthz"


def _has(rows: Sequence[Row], kind: str) -> bool:
    return any(row[f"{kind}_until_ms"] is not None for row in rows)


def _short(row: Row) -> Row:
    """A row with each kind of standing in one text."""
    told = dict.fromkeys(SHORT, "")
    for kind in SHORT:
        if (until := row[f"{kind}_until_ms"]) is not None:
            told[kind] = format_span(until, row[f"{kind}_by"], row[f"{kind}_why"])
    return {**row, **told}


def _tell(found: Iterable[ActiveRestriction]) -> None:
    """What stands and no row shows."""
    for one in found:
        say(f"emq-ops: {one.queues}: {one.described()}")

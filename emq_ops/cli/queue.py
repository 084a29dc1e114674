"""``emq-ops queue ls``: how queues stand."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.following import until_interrupted
from emq_ops.cli.options import SomeQueues
from emq_ops.cli.output import counted, say
from emq_ops.cli.queues import pick
from emq_ops.cli.values import duration_ms
from emq_ops.ledger.ledger import Ledger
from emq_ops.overview.overview import QueueStanding, standings
from emq_ops.overview.words import ago, span
from emq_ops.policy.secrets import hide
from emq_ops.policy.words import did_you_mean
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.server import Server

TABLE = (
    *("queue", "waiting", "active", "scheduled", "dead", "oldest", "state", "lease", "last_death", "lag", "leader"),
)
FIELDS = (
    *("queue", "waiting", "pending", "in_lanes", "active", "scheduled", "dead", "oldest_waiting_ms", "oldest_lease_ms"),
    *("lapsed", "overdue", "paused", "held_until_ms", "held_by", "protected", "last_death_ms", "archive_lag_ms"),
    *("leader", "problems", "error"),
)
SORTED_BY = {
    "oldest": "oldest_waiting_ms",
    "lease": "oldest_lease_ms",
    "last_death": "last_death_ms",
    "lag": "archive_lag_ms",
    "state": "paused",
}
"""Columns of the table that stand for a field."""
_SMALLEST_FIRST = frozenset({"queue", "leader", "last_death_ms"})


def ls(
    ctx: typer.Context,
    queues: SomeQueues = None,
    sort: Annotated[str, typer.Option("-s", "--sort", help="By this column.", metavar="COLUMN")] = "queue",
    unhealthy: Annotated[bool, typer.Option("--unhealthy", help="Only those with something wrong, and what.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Again and again, until Ctrl-C.")] = False,
    every: Annotated[str, typer.Option(help="With --watch: how often (2s).", metavar="DURATION")] = "2s",
) -> None:
    """List queues: what waits, runs and died, since when, and what is wrong.

    One look of the server at each, a hundred queues a round trip. Of a queue with very many lanes 10,000 are looked at;
    then its numbers begin with >=.

    Examples:

      emq-ops queue ls 'mail-*' -s dead

      emq-ops queue ls --unhealthy --watch
    """
    context = CommandContext.of(ctx)
    by = _column(sort)
    pause = duration_ms(every, "--every") / 1000
    if pause <= 0:
        raise BadInputError("no time at all", where="--every", fix="give a duration such as 2s")
    with context.server("queue") as server, context.ledger_if_there() as ledger:
        if not watch:
            _look(context, server, ledger, queues or (), by, unhealthy=unhealthy, clear=False)
            return
        with until_interrupted() as interrupted:
            while not interrupted.is_set():
                _look(context, server, ledger, queues or (), by, unhealthy=unhealthy, clear=True)
                sys.stdout.flush()
                time.sleep(pause)


def _look(
    context: CommandContext,
    server: Server,
    ledger: Ledger | None,
    queues: Sequence[str],
    by: str,
    *,
    unhealthy: bool,
    clear: bool,
) -> None:
    names = pick(context, queues, server)
    protected, streams = protected_of(context, names), streams_of(context, names)
    found = list(standings(server, names, ledger, protected=protected, streams=streams))
    if clear and sys.stdout.isatty():
        sys.stdout.write("\x1b[H\x1b[2J")
    _show(context, found, by, unhealthy=unhealthy)


def ls_once(context: CommandContext, queues: Sequence[str]) -> None:
    """One table of the queues."""
    with context.server("queue") as server, context.ledger_if_there() as ledger:
        _look(context, server, ledger, queues, "queue", unhealthy=False, clear=False)


def protected_of(context: CommandContext, names: Sequence[str]) -> set[str]:
    """Those of the queues that the config protects."""
    return {name for name in names if context.layers.effective(name).protect}


def streams_of(context: CommandContext, names: Sequence[str]) -> dict[str, list[str]]:
    return {name: list(context.layers.effective(name).streams) for name in names}


def _column(name: str) -> str:
    column = SORTED_BY.get(name, name)
    if column not in FIELDS:
        near = did_you_mean(name, sorted({*TABLE, *FIELDS}))
        raise BadInputError(f"no column '{name}'", where="--sort", fix=near or f"one of {', '.join(TABLE)}")
    return column


def _show(context: CommandContext, found: list[QueueStanding], by: str, *, unhealthy: bool) -> None:
    chosen = [one for one in found if one.problems] if unhealthy else found
    rows = [(one, one.as_row()) for one in chosen]
    rows.sort(key=lambda pair: _key(pair[1][by], by))
    if context.output != "table":
        context.emit_rows((row for _, row in rows), FIELDS)
    elif rows:
        columns = ("queue", "waiting", "active", "dead", "oldest", "wrong") if unhealthy else TABLE
        context.emit_rows([_told(one, row) for one, row in rows], columns)
    bad = sum(bool(one.problems) for one in found)
    told = f"{counted(len(found), 'queue')}, {bad} with something wrong"
    if not found:
        told = f"no queues on {hide(str(context.wiring.server['url']))}"
    if not found and not context.names_server:
        told += "; name another: --url URL or EMQ_URL, or `emq-ops --url URL init` for a config"
    say(told + (": emq-ops queue ls --unhealthy" if bad and not unhealthy else ""))


def _key(value: Any, by: str) -> Any:
    """Numbers from the largest down, names from the first up; what is not known comes last."""
    if isinstance(value, str | list):
        return (0, 0, str(value)) if value else (1, 0, "")
    if value is None:
        return 1, 0, ""
    return 0, value if by in _SMALLEST_FIRST else -value, ""


def _told(one: QueueStanding, row: dict[str, Any]) -> dict[str, Any]:
    look = one.look
    if look is None:
        return {"queue": one.queue, "state": one.state or "?", "wrong": row["error"], "leader": row["error"]}
    least = ">= " if look.more_lanes else ""
    waiting = f"{least}{look.waiting:,}" if least else look.waiting
    return {
        "queue": one.queue,
        "waiting": waiting,
        "active": look.active,
        "scheduled": look.scheduled,
        "dead": look.dead,
        "oldest": _span(row["oldest_waiting_ms"]),
        "lease": ago(look.deadline_ms, look.now_ms),
        "state": one.state,
        "last_death": ago(one.last_death_ms, look.now_ms),
        "lag": _span(look.lag_ms),
        "leader": look.leader,
        "wrong": "; ".join(problem.text for problem in one.problems),
    }


def _span(ms: int | None) -> str:
    return "" if ms is None else span(ms)

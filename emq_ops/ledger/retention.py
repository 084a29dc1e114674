"""What is forgotten, and when, so that nothing grows without bound. Never a job that is dead now, nor a fact that a
pass rests on (tokens, contacts, the newest interruption of a queue, holds and windows that stand)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Table, delete, func, or_, select

from emq_ops.ledger.acts import act_items
from emq_ops.ledger.daemon_schema import alert_silences
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.runs import IDLE
from emq_ops.ledger.schema import alerts, census, deaths, holds, interruptions, requests, runs, snapshots, windows
from emq_ops.ledger.stalls import stalls

_DAY = 86_400_000
_PAGE = 2_000


@dataclass(frozen=True, slots=True)
class Retention:
    """How long each kind of record is kept, ms. `snapshots`: rows of jobs that are gone (an undo needs them);
    `acts`: jobs that a person took away, for the same reason."""

    deaths_ms: int = 365 * _DAY
    snapshots_ms: int = 30 * _DAY
    runs_ms: int = 90 * _DAY
    idle_runs_ms: int = 2 * _DAY
    interruptions_ms: int = 365 * _DAY
    census_ms: int = 30 * _DAY
    alerts_ms: int = 90 * _DAY
    requests_ms: int = 7 * _DAY
    windows_ms: int = 90 * _DAY
    stalls_ms: int = 90 * _DAY
    acts_ms: int = 30 * _DAY

    @classmethod
    def lasting(cls, ms: int) -> Retention:
        """What is remembered of runs and deaths is kept for `ms` after their end; what an undo or a census needs for no
        longer than that, and interruptions, which explain deaths, for no less than that."""
        usual = cls()
        return cls(
            deaths_ms=ms,
            snapshots_ms=min(usual.snapshots_ms, ms),
            runs_ms=ms,
            idle_runs_ms=min(usual.idle_runs_ms, ms),
            interruptions_ms=max(usual.interruptions_ms, ms),
            census_ms=min(usual.census_ms, ms),
            alerts_ms=ms,
            windows_ms=max(usual.windows_ms, ms),
            stalls_ms=ms,
            acts_ms=min(usual.acts_ms, ms),
        )


def prune(ledger: Ledger, now_ms: int, keep: Retention | None = None) -> dict[str, int]:
    """Forgets what is older than `keep` says; answers how many of each. Works in pages, one transaction each, so that
    no pass waits long for it."""
    keep = keep or Retention()
    newest = select(func.max(interruptions.c.id)).group_by(interruptions.c.queue)
    gone_deaths = select(deaths.c.id).where(deaths.c.gone_ms < now_ms - keep.snapshots_ms)
    idle = runs.c.status == IDLE
    old_census = select(interruptions.c.id).where(interruptions.c.ended_ms < now_ms - keep.census_ms)
    rules: list[tuple[str, Table, list[Any]]] = [
        ("snapshots", snapshots, [snapshots.c.death.in_(gone_deaths)]),
        ("deaths", deaths, [deaths.c.gone_ms < now_ms - keep.deaths_ms]),
        (
            "runs",
            runs,
            [or_(runs.c.ended_ms < now_ms - keep.runs_ms, runs.c.started_ms < now_ms - 2 * keep.runs_ms)],
        ),
        ("idle_runs", runs, [idle, runs.c.ended_ms < now_ms - keep.idle_runs_ms]),
        ("census", census, [census.c.interruption.in_(old_census), census.c.interruption.not_in(newest)]),
        (
            "interruptions",
            interruptions,
            [interruptions.c.ended_ms < now_ms - keep.interruptions_ms, interruptions.c.id.not_in(newest)],
        ),
        ("silences", alert_silences, [alert_silences.c.until_ms < now_ms - keep.windows_ms]),
        ("alerts", alerts, [alerts.c.at_ms < now_ms - keep.alerts_ms]),
        (
            "requests",
            requests,
            [or_(requests.c.done_ms < now_ms - keep.requests_ms, requests.c.asked_ms < now_ms - 2 * keep.requests_ms)],
        ),
        ("holds", holds, [holds.c.until_ms < now_ms - keep.windows_ms]),
        ("windows", windows, [windows.c.end_ms < now_ms - keep.windows_ms]),
        ("stalls", stalls, [stalls.c.at_ms < now_ms - keep.stalls_ms]),
        ("acts", act_items, [act_items.c.at_ms < now_ms - keep.acts_ms]),
    ]
    return {name: _in_pages(ledger, table, where) for name, table, where in rules}


def _in_pages(ledger: Ledger, table: Table, where: list[Any]) -> int:
    keys = list(table.primary_key)
    total = 0
    while True:
        with ledger.write() as connection:
            page = connection.execute(select(*keys).where(*where).limit(_PAGE)).all()
            for key in page if len(keys) > 1 else ():
                connection.execute(delete(table).where(*(c == v for c, v in zip(keys, key, strict=True))))
            if page and len(keys) == 1:
                connection.execute(delete(table).where(keys[0].in_([row[0] for row in page])))
        total += len(page)
        if len(page) < _PAGE:
            return total

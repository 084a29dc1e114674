"""What is asked of the ledger afterwards: bursts, deaths that no sweep counted, thresholds that were in force."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator
from typing import NamedTuple

from sqlalchemy import case, exists, func, or_, select

from emq_ops.database.statements import equal
from emq_ops.ledger.deaths import STALLED
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.schema import deaths, runs
from emq_ops.ledger.stalls import DEAD, FORCED, RECOVERED, Stall, stalls

_PAGE = 2000


class CountedTogether(NamedTuple):
    """The leases that one sweep counted. `first_ms`, `last_ms`: their deadlines; `across`: how many belong to an
    interruption; `jobs`: some of them."""

    queue: str
    run: str
    at_ms: int
    leases: int
    died: int
    first_ms: int
    last_ms: int
    across: int
    jobs: list[str]


def counted_together(
    ledger: Ledger, queue: str | None, *, least: int, since_ms: int, named: int
) -> list[CountedTogether]:
    """The sweeps that counted `least` stalls or more, oldest first, each with up to `named` of its jobs."""
    s, counted = stalls, stalls.c.outcome.in_([RECOVERED, FORCED, DEAD])
    total, died = func.count(), func.sum(case((s.c.outcome == DEAD, 1), else_=0))
    lapsed = (func.min(s.c.deadline_ms), func.max(s.c.deadline_ms), func.count(s.c.interruption))
    wanted = (
        select(s.c.queue, s.c.run, func.max(s.c.at_ms), total, died, *lapsed)
        .where(counted, s.c.at_ms >= since_ms)
        .group_by(s.c.queue, s.c.run)
        .having(total >= least)
        .order_by(s.c.run)
    )
    with ledger.read() as connection:
        out = []
        for row in connection.execute(equal(wanted, stalls, queue=queue)):
            names = select(s.c.job).where(s.c.run == row.run, counted).order_by(s.c.id).limit(named)
            name, run, at_ms, leases, dead, first, last, across = row
            jobs = list(connection.execute(names).scalars())
            out.append(CountedTogether(name, run, at_ms, leases, int(dead), first, last, across, jobs))
        return out


def queues_to_replay(ledger: Ledger) -> list[str]:
    """The queues of which the ledger has stalls or deaths."""
    with ledger.read() as connection:
        found = {*connection.execute(select(stalls.c.queue).distinct()).scalars()}
        return sorted(found.union(connection.execute(select(deaths.c.queue).distinct()).scalars()))


def uncounted_deaths(ledger: Ledger, queue: str) -> Iterator[list[Stall]]:
    """Stalled deaths by others, and those whose stall the ledger has no longer (deaths are kept longer), each as a
    stall without evidence; by job."""
    d, s = deaths, stalls
    told = exists().where(s.c.queue == d.c.queue, s.c.job == d.c.job, s.c.run == d.c.killed_by, s.c.outcome == DEAD)
    after: tuple[str, int] = ("", 0)
    wanted = (
        select(d.c.id, d.c.job, d.c.attempts, d.c.first_seen_ms, d.c.stalls, d.c.killed_by)
        .where(d.c.queue == queue, d.c.cause == STALLED, d.c.stalls > 0, or_(d.c.killed_by.is_(None), ~told))
        .order_by(d.c.job, d.c.id)
        .limit(_PAGE)
    )
    while True:
        beyond = (d.c.job > after[0]) | ((d.c.job == after[0]) & (d.c.id > after[1]))
        with ledger.read() as connection:
            rows = connection.execute(wanted.where(beyond)).all()
        for row in rows:
            run = row.killed_by or ""
            yield [Stall(row.job, row.attempts, row.first_seen_ms, 0, DEAD, row.stalls, "", None, run, queue)]
        if len(rows) < _PAGE:
            return
        after = (rows[-1].job, rows[-1].id)


def thresholds(ledger: Ledger, queues: Collection[str]) -> dict[str, int]:
    """`max_stalled` as sweeps of these queues had it -> how many sweeps."""
    seen: Counter[str] = Counter()
    with ledger.read() as connection:
        for queue, text in connection.execute(select(runs.c.queue, runs.c.policy).where(runs.c.kind == "sweep")):
            threshold = json.loads(text).get("max_stalled") if queue in queues else None
            if threshold is not None:
                seen[str(threshold)] += 1
    return dict(sorted(seen.items()))

"""Alerts that passes raised, and what competes with us for a queue."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, delete, select

from emq_ops.database.records import Records
from emq_ops.database.statements import among, equal, insert
from emq_ops.ledger import deaths
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.schema import alerts, competitors, contacts, watches

RECOVERER, SWEEPER, ARCHIVER, PUMP = "recoverer", "sweeper", "archiver", "pump"


@dataclass(frozen=True, slots=True)
class Alert:
    """Something an operator should know. `at_ms`: server clock."""

    queue: str
    kind: str
    text: str
    at_ms: int
    facts: dict[str, Any] = field(default_factory=dict)
    run: str | None = None
    id: int = 0


_ALERTS = Records(alerts, Alert, packed=["facts"])


def add_alert(connection: Connection, alert: Alert) -> None:
    """Keeps an alert."""
    connection.execute(alerts.insert().values(_ALERTS.values(alert, but=["id"])))


def listing(ledger: Ledger, *, after: int = 0, limit: int = 1000) -> list[Alert]:
    """Alerts with an id above `after`, oldest first."""
    with ledger.read() as connection:
        return _ALERTS.all(connection, _ALERTS.select.where(alerts.c.id > after).order_by(alerts.c.id).limit(limit))


def newest(ledger: Ledger, limit: int) -> list[Alert]:
    """The newest alerts first."""
    with ledger.read() as connection:
        return _ALERTS.all(connection, _ALERTS.select.order_by(alerts.c.id.desc()).limit(limit))


@dataclass(frozen=True, slots=True)
class Competitor:
    """Who else does our work on a queue: a ``recoverer`` (leases leave `active` past their deadline, no stall counted,
    no pass of ours), a ``sweeper`` (stalls are counted, not by us), an ``archiver``, a ``pump`` (repeatables fire, not
    by us). Times: server clock."""

    queue: str
    kind: str
    first_ms: int
    last_ms: int
    times: int
    evidence: dict[str, Any] = field(default_factory=dict)


_COMPETITORS = Records(competitors, Competitor, packed=["evidence"])


def note_competitor(connection: Connection, queue: str, kind: str, at_ms: int, times: int, evidence: Any) -> bool:
    """Notes that one was seen `times` more; True where it is the first time."""
    key = (competitors.c.queue == queue, competitors.c.kind == kind)
    first = connection.execute(select(competitors.c.times).where(*key)).scalar()
    values = _COMPETITORS.values(Competitor(queue, kind, at_ms, at_ms, times, evidence))
    new = insert(connection, competitors).values(values)
    changed = {"last_ms": at_ms, "times": competitors.c.times + times, "evidence": values["evidence"]}
    keys = [competitors.c.queue, competitors.c.kind]
    connection.execute(new.on_conflict_do_update(index_elements=keys, set_=changed))
    return first is None


def competing(ledger: Ledger, queue: str | None = None, *, since_ms: int = 0) -> list[Competitor]:
    """Who was seen competing at `since_ms` or later."""
    wanted = _COMPETITORS.select.where(competitors.c.last_ms >= since_ms).order_by(competitors.c.queue)
    with ledger.read() as connection:
        return _COMPETITORS.all(connection, equal(wanted, competitors, queue=queue))


@dataclass(frozen=True, slots=True)
class Watched:
    """A lease as it was sampled: looked at again by the next pass."""

    job: str
    token: int
    deadline_ms: int
    stalls: int


_WATCHES = Records(watches, Watched)


def watched(connection: Connection, queue: str) -> list[Watched]:
    """The sample of the last pass."""
    return _WATCHES.all(connection, _WATCHES.select.where(watches.c.queue == queue))


def sampled(connection: Connection, queues: Sequence[str]) -> set[str]:
    """Those of `queues` of which the last pass took a sample."""
    wanted = select(watches.c.queue).where(among(connection, watches.c.queue, queues))
    return set(connection.execute(wanted.distinct()).scalars())


def unsettled(ledger: Ledger, live: Collection[str]) -> list[str]:
    """Queues besides `live` of which the ledger has jobs, dead or in flight: the server may have lost them whole. Their
    next pass tells, and they are settled."""
    with ledger.read() as connection:
        known = [q for q in connection.execute(select(contacts.c.queue)).scalars() if q not in live]
        return sorted(sampled(connection, known) | deaths.with_open(connection, known)) if known else []


def watch(connection: Connection, queue: str, sample: list[Watched]) -> None:
    """Replaces the sample."""
    connection.execute(delete(watches).where(watches.c.queue == queue))
    if sample:
        connection.execute(watches.insert(), [{"queue": queue, **_WATCHES.values(one)} for one in sample])

"""How alert rules stand, and which of them are silent: shared by all daemons of a state."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, delete

from emq_ops.database.records import AsRow, Records
from emq_ops.database.statements import upsert
from emq_ops.ledger.daemon_schema import alert_silences, alert_states
from emq_ops.ledger.ledger import Ledger
from emq_ops.protocol.globs import matches


@dataclass(frozen=True, slots=True)
class AlertState(AsRow):
    """A rule that holds for a queue (``*``: for the server) since `since_ms`; `firing_ms`: since when it has held for
    long enough; `told_ms`: when it was last told. Times: server clock, unix ms; None: not yet."""

    rule: str
    queue: str
    since_ms: int
    firing_ms: int | None = None
    told_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Silence(AsRow):
    """Until then nothing is told of these rules for these queues (globs). Times: server clock, unix ms."""

    rules: str
    queues: str
    since_ms: int
    until_ms: int
    holder: str = ""
    why: str = ""
    id: int = 0

    def covers(self, rule: str, queue: str) -> bool:
        """Whether it is about this."""
        return matches(self.rules, rule) and (self.queues == "*" or matches(self.queues, queue))


_STATES = Records(alert_states, AlertState)
_SILENCES = Records(alert_silences, Silence)


def states(ledger: Ledger) -> list[AlertState]:
    """All of them, by rule and queue."""
    with ledger.read() as connection:
        return _STATES.all(connection, _STATES.select.order_by(alert_states.c.rule, alert_states.c.queue))


def keep(connection: Connection, put: Iterable[AlertState], drop: Iterable[AlertState]) -> None:
    """Writes what changed."""
    for state in drop:
        where = (alert_states.c.rule == state.rule, alert_states.c.queue == state.queue)
        connection.execute(delete(alert_states).where(*where))
    for state in put:
        upsert(connection, alert_states, _STATES.values(state))


def silences(ledger: Ledger, now_ms: int) -> list[Silence]:
    """Those that stand at that time, the newest last."""
    with ledger.read() as connection:
        wanted = _SILENCES.select.where(alert_silences.c.until_ms > now_ms).order_by(alert_silences.c.id)
        return _SILENCES.all(connection, wanted)


def silence(ledger: Ledger, wanted: Silence) -> int:
    """Begins one; returns its number."""
    with ledger.write() as connection:
        values = _SILENCES.values(wanted, but=["id"])
        return int(
            connection.execute(alert_silences.insert().values(values).returning(alert_silences.c.id)).scalar_one()
        )


def end_silence(ledger: Ledger, number: int) -> bool:
    """Ends one; False where there is none."""
    with ledger.write() as connection:
        return bool(connection.execute(delete(alert_silences).where(alert_silences.c.id == number)).rowcount)

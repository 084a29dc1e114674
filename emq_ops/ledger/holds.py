"""Holds and maintenance windows: an operator's word that no pass runs on a queue, or that its stalls do not count."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, delete, update

from emq_ops.database.records import AsRow, Records
from emq_ops.database.statements import upsert
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.schema import holds, windows
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.globs import matches


@dataclass(frozen=True, slots=True)
class Hold(AsRow):
    """No pass runs on `queue` until then. Times: server clock, unix ms."""

    queue: str
    since_ms: int
    until_ms: int
    holder: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Window(AsRow):
    """A maintenance window: a lease whose deadline lies within it is recovered without counting.

    `queues`: a selector (`emq_ops.protocol.globs`). Times: server clock, unix ms. `id` 0: from the config.
    """

    queues: str
    start_ms: int
    end_ms: int
    id: int = 0
    holder: str = ""
    why: str = ""

    def covers(self, queue: str) -> bool:
        """Whether it is for this queue."""
        return matches(self.queues, queue)


_HOLDS = Records(holds, Hold)
_WINDOWS = Records(windows, Window)


def hold(ledger: Ledger, wanted: Hold) -> None:
    """Holds a queue; a hold that stands is replaced."""
    with ledger.write() as connection:
        upsert(connection, holds, _HOLDS.values(wanted))


def release(ledger: Ledger, queue: str) -> bool:
    """Ends a hold; False where there was none."""
    with ledger.write() as connection:
        return bool(connection.execute(delete(holds).where(holds.c.queue == queue)).rowcount)


def hold_of(connection: Connection, queue: str, now_ms: int) -> Hold | None:
    """The hold that stands on a queue at that time."""
    return _HOLDS.first(connection, _HOLDS.select.where(holds.c.queue == queue, holds.c.until_ms > now_ms))


def all_holds(ledger: Ledger) -> list[Hold]:
    """Every hold, also those whose time is over and that nobody released."""
    with ledger.read() as connection:
        return _HOLDS.all(connection, _HOLDS.select.order_by(holds.c.queue))


def open_window(ledger: Ledger, wanted: Window) -> Window:
    """Opens a window; answers it with its id. Raises BadInputError for one that ends before it starts."""
    if wanted.end_ms <= wanted.start_ms:
        raise BadInputError("a maintenance window must end after it starts", fix="give it a length, such as --for 5m")
    values = _WINDOWS.values(wanted, but=["id"])
    with ledger.write() as connection:
        number = connection.execute(windows.insert().values(values).returning(windows.c.id)).scalar_one()
    return dataclasses.replace(wanted, id=int(number))


def close_windows(ledger: Ledger, now_ms: int, queues: str | None = None) -> list[Window]:
    """Ends the windows that are open (those opened for exactly `queues`, or all); answers them as they were."""
    with ledger.write() as connection:
        still = [w for w in _windows(connection) if w.start_ms <= now_ms < w.end_ms and queues in (None, w.queues)]
        for window in still:
            # A window stopped in the millisecond it began still covers that one.
            end = max(now_ms, window.start_ms + 1)
            connection.execute(update(windows).where(windows.c.id == window.id).values(end_ms=end))
    return still


def all_windows(ledger: Ledger) -> list[Window]:
    """Every window that is kept, oldest first."""
    with ledger.read() as connection:
        return _windows(connection)


def windows_of(connection: Connection, queue: str, since_ms: int, more: Iterable[Window] = ()) -> list[Window]:
    """The windows for a queue that end at `since_ms` or later: those of the ledger, and `more` from the config."""
    return [w for w in (*_windows(connection), *more) if w.end_ms >= since_ms and w.covers(queue)]


def _windows(connection: Connection) -> list[Window]:
    return _WINDOWS.all(connection, _WINDOWS.select.order_by(windows.c.id))

"""What is remembered of each task from one daemon to the next, and which daemons live."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, delete

from emq_ops.database.records import AsRow, Records
from emq_ops.database.statements import insert, upsert
from emq_ops.ledger.daemon_schema import daemons, task_marks
from emq_ops.ledger.ledger import Ledger, clock_ms, host_ms

ALIVE_MS = 30_000
"""A daemon that said nothing for so long is not shown as living."""

AHEAD_MS = 60_000
"""An instant so far to come was written by a host whose clock was wrong, and says nothing of now."""


_INSTANTS = ("due_ms", "next_ms", "started_ms", "ended_ms")


@dataclass(slots=True)
class TaskProgress(AsRow):
    """One task of one queue. `due_ms`: the last instant that was seen to, run or missed; `late_ms`: how late the last
    run began; `missed`, `skipped`: runs too late to start, and those folded into a later one; `failures`: in a row,
    `error` the last one's. Unix ms by the host's clock."""

    queue: str
    task: str
    due_ms: int
    next_ms: int | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    late_ms: int = 0
    runs: int = 0
    missed: int = 0
    skipped: int = 0
    failures: int = 0
    error: str | None = None
    holder: str = ""

    def see_to(self, instant_ms: int, now_ms: int) -> None:
        """Runs up to this instant are accounted for."""
        self.due_ms = instant_ms if self.due_ms > now_ms + AHEAD_MS else max(self.due_ms, instant_ms)

    def shift(self, by_ms: int) -> TaskProgress:
        """The same by a clock that is so far ahead."""
        if not by_ms:
            return self
        later = {name: at + by_ms for name in _INSTANTS if (at := getattr(self, name)) is not None}
        return replace(self, **later)

    def trust(self, now_ms: int) -> None:
        """Takes back what a clock wrote that was ahead of now: whatever was due until now is seen to, and no more."""
        if max(self.due_ms, self.started_ms or 0, self.ended_ms or 0) <= now_ms + AHEAD_MS:
            return
        self.due_ms, self.next_ms = min(self.due_ms, now_ms), None
        self.started_ms = None if self.started_ms is None else min(self.started_ms, now_ms)
        self.ended_ms = None if self.ended_ms is None else min(self.ended_ms, now_ms)


@dataclass(frozen=True, slots=True)
class Living:
    """A daemon that was seen lately. `leads`: how many queues."""

    holder: str
    started_ms: int
    seen_ms: int
    revision: int | None
    leads: int
    facts: dict[str, Any]


_PROGRESS = Records(task_marks, TaskProgress)
_DAEMONS = Records(daemons, Living, packed=["facts"])


def load(ledger: Ledger) -> dict[tuple[str, str], TaskProgress]:
    """The progress of every task, by queue and task."""
    with ledger.read() as connection:
        ahead = _ahead_ms(connection)
        found = [one.shift(ahead) for one in _PROGRESS.all(connection, _PROGRESS.select)]
    now = host_ms()
    for one in found:
        one.trust(now)
    return {(one.queue, one.task): one for one in found}


def save(ledger: Ledger, tasks: Iterable[TaskProgress]) -> None:
    """Writes the progress of tasks in one transaction. An older instant never replaces a newer one, unless
    that one is of a clock that was ahead."""
    # In one order everywhere: two daemons must not wait for one another.
    ordered = sorted(tasks, key=lambda task: (task.queue, task.task))
    if not ordered:
        return
    with ledger.write() as connection:
        ahead = _ahead_ms(connection)
        rows = [_PROGRESS.values(task.shift(-ahead)) for task in ordered]
        # One statement, compiled once, for each row: many rows in one would be compiled anew each time.
        new = insert(connection, task_marks)
        values = {c.name: new.excluded[c.name] for c in task_marks.c if c.name not in ("queue", "task")}
        keys = [task_marks.c.queue, task_marks.c.task]
        newer = (new.excluded.due_ms >= task_marks.c.due_ms) | (task_marks.c.due_ms > clock_ms(connection) + AHEAD_MS)
        connection.execute(new.on_conflict_do_update(index_elements=keys, set_=values, where=newer), rows)


def _ahead_ms(connection: Connection) -> int:
    """By how much this host's clock is ahead of the one that all hosts share; 0 where they go together, so that a cron
    line's instant stays the same on all."""
    ahead = host_ms() - clock_ms(connection)
    return ahead if abs(ahead) > AHEAD_MS else 0


def forget(ledger: Ledger, gone: Sequence[tuple[str, str]]) -> None:
    """Drops the progress of tasks that no revision has any more."""
    with ledger.write() as connection:
        for queue, task in gone:
            connection.execute(delete(task_marks).where(task_marks.c.queue == queue, task_marks.c.task == task))


def beat(ledger: Ledger, living: Living) -> None:
    """A daemon says that it lives; those long silent are dropped."""
    with ledger.write() as connection:
        now = clock_ms(connection)
        upsert(connection, daemons, {**_DAEMONS.values(living), "seen_ms": now})
        old = (daemons.c.seen_ms < now - 100 * ALIVE_MS) | (daemons.c.seen_ms > now + 100 * ALIVE_MS)
        connection.execute(delete(daemons).where(old))


def leave(ledger: Ledger, holder: str) -> None:
    """A daemon says that it ends."""
    with ledger.write() as connection:
        connection.execute(delete(daemons).where(daemons.c.holder == holder))


def living(ledger: Ledger) -> list[Living]:
    """The daemons that were seen within ALIVE_MS, by the state's own clock. One that was seen later than now was seen
    before that clock was set back."""
    with ledger.read() as connection:
        now = clock_ms(connection)
        seen = daemons.c.seen_ms.between(now - ALIVE_MS, now + ALIVE_MS)
        wanted = _DAEMONS.select.where(seen).order_by(daemons.c.started_ms)
        return _DAEMONS.all(connection, wanted)

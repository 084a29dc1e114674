"""Who fires a queue's repeatables: another pump is told by a next instant that somebody else than we put a period on.

Each of ours that sets one marks it, and each that looks marks what it saw; EchoMQ's pump knows nothing of marks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from emq_ops.ledger.alerts import PUMP, Alert, competing, note_competitor
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.events import Emit, alert
from emq_ops.protocol.errors import EmqError
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.scores import score_ms
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Arg, Server

MOST = 200
"""So many repeatables of a queue are looked at, the soonest first."""
FRESH_MS = 86_400_000
"""A pump that was seen within it is taken to run yet."""
UNFIRED = "fired by nobody that was seen (EchoMQ's Consumer does not fire): promote: {every: 1s}"
UNCLAIMED = "nobody was seen to claim flat jobs (EchoMQ's Consumer claims lanes only)"


@dataclass(frozen=True, slots=True)
class RepeatMark:
    """A repeatable: its next instant as it stands and as we set or saw it last (None: never), and its period; ms."""

    name: str
    score: bytes
    next_ms: int
    marked_ms: int | None
    every_ms: int

    @property
    def advanced(self) -> bool:
        """Whether another pump fired it. Pure: a firing sets an instant a period after it, and is no sooner than the
        instant that was due; what registers it anew sets others."""
        return self.marked_ms is not None and self.next_ms - self.every_ms >= self.marked_ms < self.next_ms


@dataclass(frozen=True, slots=True)
class Pumping:
    """Of one queue at `now_ms` (server clock): how many repeatables go by a period, and by the calendar; the soonest
    of the former."""

    now_ms: int
    periods: int = 0
    by_calendar: int = 0
    marks: tuple[RepeatMark, ...] = field(default=())

    @property
    def advanced(self) -> list[RepeatMark]:
        """Those that another pump fired."""
        return [mark for mark in self.marks if mark.advanced]


def look_at_pumps(server: Server, queues: Iterable[str]) -> dict[str, Pumping]:
    """One look at each queue, in one flush. Those that can't be read are left out: their passes say why."""
    names = list(queues)
    calls: list[tuple[list[str], list[Arg]]] = [
        ([k.repeat, k.repeat_marks, k.calendar], [k.base, MOST]) for k in map(keys_of, names)
    ]
    replies = server.run_many(load("pump_look"), calls, readonly=True)
    return {q: _pumping(reply) for q, reply in zip(names, replies, strict=True) if not isinstance(reply, EmqError)}


def _pumping(reply: list[Any]) -> Pumping:
    now, periods, dated, *flat = reply
    found = []
    for name, score, mark, every in zip(flat[::4], flat[1::4], flat[2::4], flat[3::4], strict=True):
        if every.isdigit() and len(every) <= 15:
            marked = score_ms(mark) if mark else None
            found.append(
                RepeatMark(name.decode("utf-8", "surrogateescape"), score, score_ms(score), marked, int(every))
            )
    return Pumping(int(now), int(periods), int(dated), tuple(found))


def note_pump(server: Server, ledger: Ledger, emit: Emit, queue: str, seen: Pumping) -> bool:
    """Notes another pump where one was seen, with an alert the first time, and what is seen now for whoever looks next.
    Returns whether one was seen in this look. Raises what server and ledger raise."""
    advanced = seen.advanced
    if advanced:
        names = [mark.name for mark in advanced[:10]]
        with ledger.write() as connection:
            first = note_competitor(connection, queue, PUMP, seen.now_ms, len(advanced), {"repeatables": names})
        if first:
            text = f"another pump fires repeatable '{names[0]}': with ours beside it occurrences come twice"
            alert(ledger, emit, Alert(queue, "competitor", text, seen.now_ms, {"kind": PUMP, "repeatables": names}))
    moved = [mark for mark in seen.marks if mark.marked_ms != mark.next_ms]
    if moved:
        k = keys_of(queue)
        args = [part for mark in moved for part in (mark.name.encode("utf-8", "surrogateescape"), mark.score)]
        server.run(load("pump_mark"), [k.repeat, k.repeat_marks], args)
    return bool(advanced)


def pumped_lately(ledger: Ledger, queue: str | None, now_ms: int) -> dict[str, int]:
    """The queues (None: of all) on which another pump was seen within FRESH_MS, and when last; unix ms."""
    rivals = competing(ledger, queue, since_ms=now_ms - FRESH_MS)
    return {rival.queue: rival.last_ms for rival in rivals if rival.kind == PUMP}


def unfired(seen: Pumping, *, pumped: bool) -> str | None:
    """What is wrong where none of ours fires a queue's repeatables; None where another pump does, or there are none."""
    count = seen.by_calendar if pumped else seen.periods + seen.by_calendar
    if not count:
        return None
    if pumped:
        return f"{_several(count)} by the calendar, which only emq-ops fires: promote: {{every: 1s, beside_pump: true}}"
    return f"{_several(count)}, {UNFIRED}"


def _several(count: int) -> str:
    return f"{count:,} repeatable{'s are' if count != 1 else ' is'} registered"

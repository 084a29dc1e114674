"""Watching many queues: looks in turn, within a share of the server's time; rates from what changed between two."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from emq_ops.ledger import marks
from emq_ops.ledger.ledger import Ledger
from emq_ops.overview.look import live_queues
from emq_ops.overview.overview import QueueStanding, standings
from emq_ops.protocol.server import Server

SHARE = 0.01
"""Of a core of the server, at the most. What is measured is how long its replies took, which is more than it worked."""
MOST_WAIT_S = 10.0
LEAST = 10
"""Queues that are not shown come to their turn by so many at least."""
NAMES_EVERY_S = 60.0
NEXT_EVERY_S = 10.0


@dataclass(frozen=True, slots=True)
class Rates:
    """What changed between two looks: jobs completed and jobs that died, a second; None before there were two."""

    completed: float | None = None
    died: float | None = None


@dataclass(frozen=True, slots=True)
class WatchedQueue:
    """A queue as it was last looked at. `next_ms`: when its next pass is due (unix ms), None where nobody says so."""

    standing: QueueStanding
    rates: Rates
    next_ms: int | None


class Watch:
    """Looks at queues again and again. `find` names them (asked at most every NAMES_EVERY_S, and less often where that
    takes the server long); `protected`, `streams`: as `standings` takes them."""

    def __init__(
        self,
        server: Server,
        ledger: Ledger | None,
        find: Callable[[], Sequence[str]] | None = None,
        *,
        protected: Iterable[str] = (),
        streams: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self._server, self._ledger = server, ledger
        self._find = find or (lambda: live_queues(server))
        self._protected, self._streams = frozenset(protected), streams
        self._names: list[str] = []
        self._names_at = self._next_at = float("-inf")
        self._names_took = 0.0
        self._due: dict[str, int] = {}
        self._turn = 0
        self._each_s = 0.0
        self._owed_s = 0.0
        self._found: dict[str, WatchedQueue] = {}

    @property
    def known(self) -> dict[str, WatchedQueue]:
        """What is known of each queue that there is."""
        return {name: self._found[name] for name in self._names if name in self._found}

    @property
    def wait_s(self) -> float:
        """How long (s) nothing may be asked, so that the share holds; after a first look at very many, MOST_WAIT_S."""
        return min(self._owed_s / SHARE, MOST_WAIT_S)

    def look(self, shown: Sequence[str] = (), every_s: float = 2.0) -> None:
        """Looks at `shown` and at some of the others, in turn: as many as the share allows every `every_s` seconds; at
        all of them at first. Raises UnreachableError, and what the ledger raises; what was known stays."""
        began = time.monotonic()
        if began - self._names_at > max(NAMES_EVERY_S, self._names_took / SHARE):
            self._names = list(self._find())
            self._names_at, self._names_took = began, time.monotonic() - began
        self._read_next(began)
        if any(name not in self._found for name in self._names):
            chosen = list(self._names)
        else:
            some = int(SHARE * every_s / max(self._each_s, 1e-6)) - len(shown)
            chosen = list(dict.fromkeys([*(name for name in shown if name in self._found), *self._in_turn(some)]))
        asked = time.monotonic()
        for standing in standings(self._server, chosen, self._ledger, protected=self._protected, streams=self._streams):
            self._take(standing)
        self._owed_s = time.monotonic() - asked
        self._each_s = self._owed_s / max(1, len(chosen))

    def _in_turn(self, wanted: int) -> list[str]:
        count = min(max(wanted, LEAST), len(self._names))
        some = [self._names[(self._turn + i) % len(self._names)] for i in range(count)]
        self._turn = (self._turn + len(some)) % max(1, len(self._names))
        return some

    def _read_next(self, now: float) -> None:
        if self._ledger is None or now - self._next_at < NEXT_EVERY_S:
            return
        self._next_at = now
        due: dict[str, int] = {}
        for (queue, _), mark in marks.load(self._ledger).items():
            if mark.next_ms is not None:
                due[queue] = min(due.get(queue, mark.next_ms), mark.next_ms)
        self._due = due

    def _take(self, standing: QueueStanding) -> None:
        before = self._found.get(standing.queue)
        rates = _rates(before, standing) if before is not None else Rates()
        self._found[standing.queue] = WatchedQueue(standing, rates, self._due.get(standing.queue))


def _rates(before: WatchedQueue, now: QueueStanding) -> Rates:
    old, new = before.standing.look, now.look
    if old is None or new is None:
        return Rates()
    if new.now_ms <= old.now_ms:
        return before.rates
    seconds = (new.now_ms - old.now_ms) / 1000
    return Rates(max(0, new.completed - old.completed) / seconds, max(0, new.failed - old.failed) / seconds)

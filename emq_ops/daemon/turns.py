"""Whose turn it is among runs that may wait for a store. While tasks that talk to the server alone wait, they get a
share of a core, so that many first folds at once keep no sweep waiting."""

from __future__ import annotations

from collections.abc import Mapping

from emq_ops.daemon import clock
from emq_ops.daemon.pools import ThreadPool
from emq_ops.daemon.timers import Cue

SHARE = 0.25
"""Of a core: what runs of the archive may use while others wait."""
BURST_SECONDS = 0.5
"""Seconds of a core that they may use at once before that counts."""
LATE_SECONDS = 2.0
"""Others wait when one of them was looked at so late."""
STANDS_SECONDS = 5.0
"""For so long after it was last seen."""
AHEAD = 4
"""Otherwise so many runs a thread are handed over at once, so that no thread waits for the next round."""
Key = tuple[str, str]


class Turns:
    """Runs that are due and known to have something to do, in the order in which they came. One thread's."""

    def __init__(self, pool: ThreadPool, size: int) -> None:
        self._pool, self._size = pool, size
        self.waiting: dict[Key, float] = {}
        """Since when each waits, on the steady clock."""
        self._late_until = 0.0
        self._at = clock.steady()
        self._spent, self._left = 0.0, BURST_SECONDS

    def looked_at(self, late_s: float) -> None:
        """Another task was looked at so late."""
        if late_s > LATE_SECONDS:
            self._late_until = clock.steady() + STANDS_SECONDS

    def take(self, ready: Mapping[Key, Cue]) -> list[tuple[Cue, float]]:
        """Those that may begin now, and since when they waited. `ready`: all that could."""
        for key in [key for key in self.waiting if key not in ready]:
            del self.waiting[key]  # it is ours no more, or may not begin now
        return [(ready[key], self.waiting.pop(key)) for key in list(self.waiting)[: self._free()]]

    def _free(self) -> int:
        now, spent = clock.steady(), self._pool.spent_s
        self._left += (now - self._at) * SHARE - (spent - self._spent)
        self._at, self._spent = now, spent
        calm = now >= self._late_until
        self._left = BURST_SECONDS if calm else min(self._left, BURST_SECONDS)
        if self._left <= 0:
            return 0
        return max(0, self._size * (AHEAD if calm else 1) - self._pool.busy)

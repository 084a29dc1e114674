"""How the queues that this daemon leads stand: looked at all the time, a few at once, from a thread of its own.

What metrics, alerts and pages say of a queue comes from here, so that whoever asks costs the server nothing.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from emq_ops.daemon import clock
from emq_ops.overview.look import FLUSH, QueueLook, look_at_queues
from emq_ops.protocol.deadline import deadline
from emq_ops.protocol.errors import EmqError
from emq_ops.protocol.server import Server

EVERY_SECONDS = 15.0
"""Each queue is looked at so often, and more seldom where that would cost more than `SHARE`."""
SHARE = 0.03
"""Of one core, at most so much goes into looking."""

ALSO_SECONDS = 60.0

Wanted = Callable[[], Mapping[str, Sequence[str]]]


def _nothing() -> None:
    pass


class QueueLooks:
    """Looks until `stop`. `wanted`: queue -> the streams of it that are archived, asked once a round, from this thread;
    `also`: done by it once a minute at most, after a round. `found`, `memory` and `taken_at` may be read from any
    thread."""

    def __init__(self, server: Server, wanted: Wanted, also: Callable[[], None] = _nothing) -> None:
        self._server, self._wanted, self._also = server, wanted, also
        self._also_at = 0.0
        self.found: dict[str, QueueLook] = {}
        """The last look at each queue; one that can't be read keeps its last for the time being."""
        self.memory: float | None = None
        """Of the node that is the fullest: used memory as a part of its limit; None where no node has a limit."""
        self.taken_at: float | None = None
        """When the last whole round ended, `clock.steady`."""
        self._clock: tuple[int, float] | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="looks", daemon=True)

    def start(self) -> None:
        """Begins to look."""
        self._thread.start()

    def stop(self) -> None:
        """Ends looking; what is on its way is not waited for."""
        self._over.set()

    def now_ms(self) -> int:
        """The server's clock, unix ms, as the newest look tells it; this host's before there was one."""
        if self._clock is None:
            return clock.now_ms()
        at, seen = self._clock
        return at + int((clock.steady() - seen) * 1000)

    def _work(self) -> None:
        spent = 0.0
        while not self._over.is_set():
            begun, busy = clock.steady(), time.thread_time()
            every = max(EVERY_SECONDS, spent / SHARE)
            self.round(begun + every)
            spent = time.thread_time() - busy
            self._over.wait(max(1.0, begun + every - clock.steady()))

    def round(self, until: float = 0.0) -> None:
        """One look at each queue, spread over the time there is `until` (`clock.steady`)."""
        streams = self._wanted()
        names = sorted(streams)
        self.found = {queue: look for queue, look in self.found.items() if queue in streams}
        for first in range(0, len(names), FLUSH):
            some = names[first : first + FLUSH]
            try:
                looks = list(look_at_queues(self._server, some, streams))
            except EmqError:
                looks = []  # its passes say what is wrong
            fresh = {look.queue: look for look in looks if isinstance(look, QueueLook)}
            for look in fresh.values():
                self._clock = look.now_ms, clock.steady()
            self.found = {**self.found, **fresh}
            slices = (len(names) - first) // FLUSH + 1
            if self._over.wait(max(0.0, until - clock.steady()) / slices / 2):
                return
        self.memory = self._fullest(names)
        self.taken_at = clock.steady()
        if self.taken_at >= self._also_at:
            self._also_at = self.taken_at + ALSO_SECONDS
            with contextlib.suppress(EmqError), deadline(ALSO_SECONDS / 6):
                self._also()

    def _fullest(self, names: Sequence[str]) -> float | None:
        found = []
        try:
            for shard in self._server.shards(names):
                facts = self._server.info(shard[0], "memory")
                if limit := int(facts.get("maxmemory") or 0):
                    found.append(int(facts.get("used_memory") or 0) / limit)
        except EmqError:
            return self.memory  # what was known stands until something else is
        return max(found, default=None)

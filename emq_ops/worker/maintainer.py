"""What a consumer does for its queue at every beat: it recovers lapsed leases and promotes jobs that are due."""

from __future__ import annotations

import time
from collections.abc import Callable

from emq_ops.protocol.native import CommandExecutor
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.transitions import aside, recover
from emq_ops.worker.events import Listener, Recovered, SetAside
from emq_ops.worker.retrying_task import RetryingTask
from emq_ops.worker.settings import ConsumerSettings

SLICE, SLICES = 100, 10
"""Jobs a call, and calls a beat."""
TIDY_SECONDS = 60.0


class Maintainer:
    """For one thread."""

    def __init__(self, queue: Queue, settings: ConsumerSettings, executor: CommandExecutor, emit: Listener) -> None:
        self._queue = queue
        self._settings = settings
        self._executor = executor
        self._emit = emit
        self._recovering = RetryingTask(f"recover ({settings.recovery})", queue.name, emit)
        self._promoting = RetryingTask("promote", queue.name, emit)
        self._looking = RetryingTask("look at what was set aside", queue.name, emit)
        self._aside: set[str] = set()
        self._next_tidy = 0.0

    def beat(self) -> bool:
        """Recovers and promotes; returns whether any job waits again."""
        recovered = None
        if self._settings.recovery != "none":
            recovered = self._recovering.attempt(lambda: _in_slices(self._recover))
        promoted = None
        if self._settings.promote:
            promoted = self._promoting.attempt(lambda: _in_slices(self._promote))
        self.tell_aside()
        return bool(recovered or promoted)

    def tell_aside(self) -> None:
        """Tells what was set aside, each once, and forgets what is gone."""
        self._looking.attempt(self._tell_aside)

    def _tell_aside(self) -> None:
        if not self._aside and not aside.count(self._queue):
            return
        if time.monotonic() >= self._next_tidy:
            self._next_tidy = time.monotonic() + TIDY_SECONDS
            aside.tidy(self._queue)
        named = aside.listing(self._queue)
        for member, reason in named.items():
            if member not in self._aside:
                self._emit(SetAside(self._queue.name, member, reason))
        self._aside = set(named)

    def _recover(self) -> tuple[int, int]:
        if self._settings.recovery == "reap":
            found = done = recover.reap(self._queue, SLICE)
            event = Recovered(self._queue.name, "reap", found)
        else:
            swept = self._executor.sweep(self._queue, self._settings.max_stalled, SLICE)
            found, done = len(swept.recovered), len(swept.recovered) + len(swept.dead)
            event = Recovered(self._queue.name, "stalled", found, tuple(swept.dead))
        if done:
            self._emit(event)
        return found, done

    def _promote(self) -> tuple[int, int]:
        promoted = recover.promote(self._queue, SLICE)
        return promoted, promoted


def _in_slices(take: Callable[[], tuple[int, int]]) -> int:
    """Calls `take`, which returns how many jobs wait again and how many it took, until a slice is short or a beat's
    share is done; returns how many wait again."""
    total = 0
    for _ in range(SLICES):
        found, taken = take()
        total += found
        if taken < SLICE:
            break
    return total

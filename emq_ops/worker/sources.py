"""Where jobs are claimed from: the flat set, the lanes, or both in turn."""

from __future__ import annotations

import time
from collections.abc import Callable

from emq_ops.protocol.errors import RateError, WireError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.transitions.claims import Claim, claim_batch, claim_lane_batch
from emq_ops.worker.backoff import Backoff
from emq_ops.worker.events import Listener
from emq_ops.worker.retrying_task import RetryingTask
from emq_ops.worker.settings import ConsumerSettings

BATCH = 100
"""Jobs a claim call at most."""
_Take = Callable[[Queue, int, int], list[Claim]]


def _flat(q: Queue, lease: int, count: int) -> list[Claim]:
    return claim_batch(q, lease, count)


def _lanes(q: Queue, lease: int, count: int) -> list[Claim]:
    return claim_lane_batch(q, lease, count, weighted=True)


class _Source:
    """`rest`: until then it is known to be empty, monotonic seconds. `idle`: its last look found nothing to take."""

    def __init__(self, task: RetryingTask, take: _Take) -> None:
        self.task = task
        self.take = take
        self.rest = 0.0
        self.idle = False

    @property
    def next(self) -> float:
        return max(self.rest, self.task.next)


class Sources:
    """For one thread."""

    def __init__(self, queue: Queue, settings: ConsumerSettings, emit: Listener) -> None:
        self._queue = queue
        self._lease = settings.lease
        self._beat = settings.beat
        self._sources = []
        if "flat" in settings.claim:
            self._sources.append(_Source(RetryingTask("claim", queue.name, emit), _flat))
        if "lanes" in settings.claim:
            self._sources.append(_Source(RetryingTask("claim from lanes", queue.name, emit), _lanes))
        self.woken = "lanes" in settings.claim
        """Whether a token on ``wake`` says anything about them: flat jobs come without one."""
        self._ceiling = Backoff(base=min(20, settings.beat), longest=settings.beat, jitter=0)
        self._refusals = 0
        self._closed_until = 0.0
        self._by_rate = False

    @property
    def at_ceiling(self) -> bool:
        """Whether the queue's concurrency ceiling, or its rate, was reached at the last look."""
        return self._refusals > 0

    @property
    def idle(self) -> bool:
        """Whether no source had anything to take when it was looked at last."""
        return not self.at_ceiling and all(source.idle for source in self._sources)

    @property
    def next_look(self) -> float:
        """When a claim may find something again, monotonic seconds."""
        return max(self._closed_until, min(source.next for source in self._sources))

    def claim(self, free: int) -> list[Claim]:
        """Up to `free` jobs from whichever source is due; the one that gave some goes to the end of the line."""
        found: list[Claim] = []
        if time.monotonic() < self._closed_until:
            return found
        for source in list(self._sources):
            room = min(free - len(found), BATCH)
            if room <= 0:
                break
            if time.monotonic() < source.next:
                continue
            claims = source.task.attempt(lambda source=source, room=room: self._look(source, room))  # type: ignore[misc]  # defaults bind the loop's values
            if claims:
                found += claims
                self._sources.remove(source)
                self._sources.append(source)
        return found

    def rouse(self) -> None:
        """Something may have come: every source is due, but those in trouble."""
        for source in self._sources:
            source.rest = 0.0

    def freed(self) -> None:
        """One of our own jobs is done: there is room below the ceiling again."""
        if not self._by_rate:
            self._closed_until = 0.0

    def _look(self, source: _Source, count: int) -> list[Claim]:
        source.idle = False
        try:
            claims = source.take(self._queue, self._lease, count)
        except RateError as refusal:
            self._refusals += 1
            self._by_rate = refusal.wait_ms is not None
            wait_ms = refusal.wait_ms or self._ceiling.delay(self._refusals)
            self._closed_until = time.monotonic() + wait_ms / 1000
            return []
        except WireError:
            source.idle = True
            raise
        self._refusals = 0
        if not claims:
            source.idle = True
            source.rest = time.monotonic() + self._beat / 1000
        return claims

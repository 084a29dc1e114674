"""A thing that a consumer does again and again; a failure is reported, and makes it wait longer each time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from emq_ops.protocol.errors import EmqError, OutcomeUnknownError, UnreachableError
from emq_ops.worker.backoff import Backoff
from emq_ops.worker.events import Listener, Trouble, TroubleEnded

T = TypeVar("T")

AWAY = Backoff(base=100, longest=5_000)
"""The server is away: look often, it may be back any moment."""
REFUSED = Backoff(base=1_000, longest=30_000)
"""The server refuses: somebody has to do something first."""


def patience(fault: EmqError) -> Backoff:
    """Returns how fast to try again after `fault`."""
    return AWAY if isinstance(fault, UnreachableError | OutcomeUnknownError) else REFUSED


class RetryingTask:
    """For one thread. `next`: when it may be tried again, monotonic seconds."""

    def __init__(self, name: str, queue: str, emit: Listener) -> None:
        self.name = name
        self.next = 0.0
        self._queue = queue
        self._emit = emit
        self._failures = 0

    def attempt(self, call: Callable[[], T]) -> T | None:
        """Returns what `call` returns, or None while the task waits after a failure, or when it just failed."""
        if time.monotonic() < self.next:
            return None
        try:
            answer = call()
        except EmqError as fault:
            self._failures += 1
            wait_ms = patience(fault).delay(self._failures)
            self.next = time.monotonic() + wait_ms / 1000
            self._emit(Trouble(self._queue, self.name, fault, wait_ms, self._failures - 1))
            return None
        failures, self._failures = self._failures, 0
        if failures:
            self._emit(TroubleEnded(self._queue, self.name))
        return answer

"""Cancelling: a message that a handler chooses to honour. Nothing interrupts a handler that does not look."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from emq_ops.protocol.transitions.cancel import DEFAULT_REASON, CancelAnswer, request

__all__ = ["DEFAULT_REASON", "LEASE_LOST", "CancelAnswer", "CancelToken", "Cancelled", "JobCancelled", "request"]

LEASE_LOST = "lease lost"
"""The reason when nobody asked, but the lease is gone: somebody else may run the job by now."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What a handler returns when it stopped: the job is completed as cancelled, and never retried."""

    reason: str = DEFAULT_REASON


class JobCancelled(Exception):
    """Raised by ``CancelToken.raise_if_cancelled``; a handler that lets it pass has stopped. `reason`: why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class CancelToken:
    """Belongs to one claim: a later claim of the same job has its own. Thread-safe."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._reason: str | None = None
        self._lost = False
        self._lock = threading.Lock()

    @property
    def lost(self) -> bool:
        """Whether nobody asked, but the lease is gone: then nothing is settled, since the job runs again elsewhere."""
        return self._lost

    def check(self) -> str | None:
        """Why the job was cancelled, or None where it was not. Does not block, and asks nobody."""
        return self._reason

    def raise_if_cancelled(self) -> None:
        """Raises JobCancelled where it was cancelled."""
        if self._reason is not None:
            raise JobCancelled(self._reason)

    def wait(self, seconds: float) -> str | None:
        """As check, but waits up to `seconds` for it."""
        self._event.wait(seconds)
        return self._reason

    def cancel(self, reason: str, *, lost: bool = False) -> bool:
        """Cancels; the first reason stands. False where it was cancelled already."""
        with self._lock:
            if self._reason is not None:
                return False
            self._lost = lost
            self._reason = reason or DEFAULT_REASON
        self._event.set()
        return True

"""A server that is away, in two lines a process, however many tasks notice: when it was lost, and when it is back."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from emq_ops.protocol.errors import OutcomeUnknownError, UnreachableError
from emq_ops.worker.events import (
    ConsumerReport,
    JobLeaseLost,
    SetAside,
    Settled,
    Silent,
    Trouble,
    TroubleEnded,
    WorkerEvent,
    describe,
)

_log = logging.getLogger("emq_ops.worker")


class Outage:
    """For events of any number of consumers and threads. `tell` takes the lines."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._lock = threading.Lock()
        self._since: float | None = None

    def takes(self, event: WorkerEvent) -> bool:
        """Whether nothing more is to be told of `event`; tells of the connection what there is to tell."""
        if isinstance(event, Trouble) and isinstance(event.error, UnreachableError | OutcomeUnknownError):
            with self._lock:
                fresh, self._since = self._since is None, self._since or time.monotonic()
            if fresh:
                self._tell(f"connection lost: {event.error}; tried again until it is back")
            return True
        if isinstance(event, TroubleEnded | Settled):
            with self._lock:
                since, self._since = self._since, None
            if since is not None:
                self._tell(f"back after {time.monotonic() - since:.0f} s")
        return isinstance(event, TroubleEnded)


_OUTAGE = Outage(_log.warning)


def log(event: WorkerEvent) -> None:
    """The listener of a consumer that was given none: what an operator must know, as warnings of ``logging``."""
    if _OUTAGE.takes(event):
        return
    if isinstance(event, Trouble | JobLeaseLost | Silent | SetAside) or (
        isinstance(event, ConsumerReport) and event.abandoned
    ):
        _log.warning("%s: %s", event.queue, describe(event))

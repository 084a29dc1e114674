"""A consumer's events: counted for its report, and told to whoever listens."""

from __future__ import annotations

import logging
import threading
from collections import Counter

from emq_ops.worker.events import ConsumerReport, JobLeaseLost, Listener, Recovered, SetAside, Settled, WorkerEvent

_COUNTED = ("completed", "cancelled", "scheduled", "delayed", "dead", "lost", "recovered", "aside")
_log = logging.getLogger("emq_ops.worker")


class EventCounter:
    """Thread-safe."""

    def __init__(self, queue: str, listener: Listener) -> None:
        self._queue = queue
        self._listener = listener
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def emit(self, event: WorkerEvent) -> None:
        """Counts an event, and tells it."""
        with self._lock:
            match event:
                case Settled(outcome=outcome):
                    self._counts[outcome] += 1
                case JobLeaseLost():
                    self._counts["lost"] += 1
                case SetAside():
                    self._counts["aside"] += 1
                case Recovered(recovered=recovered):
                    self._counts["recovered"] += recovered
        try:
            self._listener(event)
        except Exception:  # noqa: BLE001  # who listens must not stop the work
            _log.exception("%s: a listener failed at %r", self._queue, event)

    def report(self, abandoned: tuple[str, ...]) -> ConsumerReport:
        """Returns how the run went, and tells it. `abandoned`: the jobs that did not settle."""
        numbers = {name: self._counts[name] for name in _COUNTED}
        report = ConsumerReport(self._queue, **numbers, abandoned=abandoned)
        self.emit(report)
        return report

"""What the passes of a minute did, as one event: a log at rest stays readable, and says that the daemon works."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field

from emq_ops.daemon import clock
from emq_ops.passes.events import Emit, Event, PassEnded

EVERY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Summary(Event):
    """The last minute: `passes` that found something to do, by kind and how they ended, and the sums of their counts
    (``archive.folded``)."""

    passes: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    waiting: int = 0
    running: int = 0


class Digest:
    """Passes events on to `emit`, and adds up the passes that ended. Thread-safe."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._lock = threading.Lock()
        self._passes: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()

    def __call__(self, event: Event) -> None:
        """One more event."""
        if isinstance(event, PassEnded):
            with self._lock:
                self._passes[event.kind if event.status == "done" else f"{event.kind}.{event.status}"] += 1
                for name, count in event.counts.items():
                    self._counts[f"{event.kind}.{name}"] += count
        self._emit(event)

    def tell(self, *, waiting: int, running: int) -> None:
        """Says what came since the last time."""
        with self._lock:
            passes, counts = dict(sorted(self._passes.items())), dict(sorted(self._counts.items()))
            self._passes.clear()
            self._counts.clear()
        self._emit(Summary("*", passes=passes, counts=counts, waiting=waiting, running=running))


class PerMinute:
    """Lets so many through a minute. Thread-safe."""

    def __init__(self, most: int) -> None:
        self._most, self._left, self._until = most, most, 0.0
        self._lock = threading.Lock()

    def one_more(self) -> bool:
        """Whether one more may go."""
        with self._lock:
            now = clock.steady()
            if now >= self._until:
                self._left, self._until = self._most, now + 60
            self._left -= 1
            return self._left >= 0

"""Runs on their way into the ledger: those that are over, and idle ones, which share one row."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace

from emq_ops.database.statements import insert
from emq_ops.ledger.ledger import Ledger, host_ms
from emq_ops.ledger.runs import IDLE, ROWS, Run, merged, new
from emq_ops.ledger.schema import runs

IDLE_FLUSH_MS = 10_000


class PendingRuns:
    """Runs that are over, on their way into the ledger: what can't be written is kept, and goes with the next. A run
    that is there already, as it began or whole, is there once; what was found out about it meanwhile stays.
    Thread-safe."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._runs: dict[str, Run] = {}
        self._lock = threading.Lock()

    def keep(self, ended: Run) -> None:
        """Writes it with the next."""
        with self._lock:
            self._runs[ended.id] = ended

    def put(self, *ended: Run) -> None:
        """Writes these, and what was kept. Raises what the ledger raises; nothing is lost then."""
        with self._lock:
            self._runs |= {run.id: run for run in ended}
            going = list(self._runs.values())
        if not going:
            return
        with self._ledger.write() as connection:
            write = insert(connection, runs)
            how = {name: write.excluded[name] for name in ("status", "ended_ms", "counts", "error")}
            whole = [replace(run, counts=merged(connection, run.id, run.counts)) for run in going]
            values = [ROWS.values(run) for run in whole]
            connection.execute(write.on_conflict_do_update(index_elements=[runs.c.id], set_=how), values)
        with self._lock:
            for run in going:
                self._runs.pop(run.id, None)


@dataclass
class IdleBook:
    """Counts passes that found nothing; one row (queue ``*``) holds them, written at most every 10 s. Thread-safe."""

    ledger: Ledger
    holder: str
    _counts: dict[str, int] = field(default_factory=dict)
    _first_ms: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _rows: PendingRuns = field(init=False)

    def __post_init__(self) -> None:
        self._rows = PendingRuns(self.ledger)

    def note(self, kind: str, passes: int = 1) -> None:
        """One more idle pass of `kind`; flushes when it is time."""
        with self._lock:
            now = host_ms()
            if not self._counts:
                self._first_ms = now
            self._counts[kind] = self._counts.get(kind, 0) + passes
            due = now - self._first_ms >= IDLE_FLUSH_MS
        if due:
            self.flush()

    def flush(self) -> None:
        """Writes what was counted. Raises what the ledger raises; nothing is lost then, nor counted twice."""
        with self._lock:
            counts, self._counts = self._counts, {}
            first = self._first_ms
        if not counts:
            self._rows.put()
            return
        idle = new("idle", "*", holder=self.holder, trigger="daemon").over(IDLE, counts)
        self._rows.put(replace(idle, started_ms=first))

"""What the daemon remembers of each task, and its writing down: at once for what matters, now and then for the rest."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from emq_ops.daemon import clock
from emq_ops.daemon.tasks import PassTask
from emq_ops.ledger import marks
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.marks import TaskProgress
from emq_ops.passes.lease.holder import who
from emq_ops.policy.triggers import Cron

if TYPE_CHECKING:  # the scheduler is the daemon's alone; `ps` does without
    from emq_ops.daemon.timers import Cue

EVERY_MS = 10_000
"""How often idle runs are written down."""


class ProgressBook:
    """The progress of the tasks of the queues that this process leads. Thread-safe."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._marks: dict[tuple[str, str], TaskProgress] = {}
        self._dirty: set[tuple[str, str]] = set()
        self._lock = threading.Lock()
        self._me = who()

    def load(self, queues: set[str]) -> dict[tuple[str, str], TaskProgress]:
        """What is remembered of these queues' tasks, read anew: another daemon may have led them."""
        found = {key: mark for key, mark in marks.load(self._ledger).items() if key[0] in queues}
        with self._lock:
            self._marks |= found
        return found

    def mark(self, task: PassTask) -> TaskProgress:
        """A copy of what is remembered; a fresh one where nothing is."""
        with self._lock:
            return replace(self._of(task))

    def missed(self, task: PassTask, count: int) -> None:
        """Runs that were too late to start."""
        with self._lock:
            self._of(task).missed += count
            self._dirty.add(task.key)

    def seen_to(self, task: PassTask, instant: datetime) -> None:
        """Runs up to `instant` are accounted for."""
        with self._lock:
            mark = self._of(task)
            mark.see_to(clock.ms_of(instant), clock.now_ms())
            self._dirty.add(task.key)

    def begun(self, cue: Cue) -> None:
        """A run begins."""
        with self._lock:
            mark = self._of(cue.task)
            mark.started_ms, mark.late_ms, mark.holder = clock.now_ms(), cue.late_ms, self._me
            mark.skipped += cue.skipped

    def ended(self, cue: Cue, error: str | None, *, idle: bool) -> int:
        """A run ended; answers the failures in a row. What another daemon must know is written at once: a failure, a
        run that did something, a cron run (its instant must not come twice)."""
        with self._lock:
            mark = self._of(cue.task)
            mark.ended_ms, mark.runs, mark.error = clock.now_ms(), mark.runs + 1, error
            mark.failures = mark.failures + 1 if error else 0
            mark.see_to(clock.ms_of(cue.instant), clock.now_ms())
            self._dirty.add(cue.task.key)
            failures = mark.failures
        if error or not idle or isinstance(cue.task.schedule.trigger, Cron):
            self._write([cue.task.key])
        return failures

    def idled(self, cue: Cue) -> None:
        """A cue whose task had nothing to do."""
        with self._lock:
            mark = self._of(cue.task)
            mark.started_ms = mark.ended_ms = clock.now_ms()
            mark.late_ms, mark.holder = cue.late_ms, self._me
            mark.skipped += cue.skipped
            mark.runs, mark.failures, mark.error = mark.runs + 1, 0, None
            mark.see_to(clock.ms_of(cue.instant), clock.now_ms())
            self._dirty.add(cue.task.key)

    def moved(self, times: dict[tuple[str, str], tuple[datetime, datetime]]) -> None:
        """The wall was stepped, and the timetable with it: of each task, the last instant seen to and the next."""
        with self._lock:
            for key in times.keys() & self._marks.keys():
                base, fires = times[key]
                mark = self._marks[key]
                mark.due_ms, mark.next_ms = min(clock.ms_of(base), clock.now_ms()), clock.ms_of(fires)
                self._dirty.add(key)

    def flush(self, next_ms: dict[tuple[str, str], int] | None = None) -> None:
        """Writes what is new. `next_ms`: when each task is due next. Raises what the ledger raises; nothing is lost
        then, the next flush has it."""
        with self._lock:
            for key, instant in (next_ms or {}).items():
                if key in self._marks:
                    self._marks[key].next_ms = instant
            dirty = list(self._dirty)
        self._write(dirty)

    def forget(self, queues: set[str]) -> None:
        """We do not lead these any more."""
        with self._lock:
            for key in [key for key in self._marks if key[0] in queues]:
                del self._marks[key]
                self._dirty.discard(key)

    def _write(self, keys: list[tuple[str, str]]) -> None:
        with self._lock:
            rows = [replace(self._marks[key]) for key in keys if key in self._marks]
        marks.save(self._ledger, rows)
        with self._lock:
            self._dirty.difference_update(keys)

    def _of(self, task: PassTask) -> TaskProgress:
        return self._marks.setdefault(task.key, TaskProgress(task.queue, task.name, due_ms=0))

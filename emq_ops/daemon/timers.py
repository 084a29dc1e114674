"""When each task is due: APScheduler with triggers of ours, and the bookkeeping of late and missed runs.

The scheduler only tells that a task is due; running it is `work`'s part. What is remembered of a task (`TaskProgress`)
says from which instant on runs are counted, so that a restart, an identical apply or a clock that is set back neither
repeats nor loses one.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from apscheduler.executors.debug import DebugExecutor
from apscheduler.jobstores.base import JobLookupError
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger

from emq_ops.daemon import clock
from emq_ops.daemon.tasks import PassTask
from emq_ops.ledger.marks import TaskProgress
from emq_ops.policy.triggers import Interval

SPREAD_MS = 2_000
"""The first runs of tasks that never ran are spread over so long, so that a start does not do all at once; over longer
where they are many: so many ms a task."""
SPREAD_MS_EACH = 4
PATIENT_MS = 600_000
"""Of passes that can wait, at the least over this."""


@dataclass(frozen=True, slots=True)
class Cue:
    """A run that is due: `instant` it was due at (without jitter), `late_ms` when the cue was given; `missed` and
    `skipped` runs before it."""

    task: PassTask
    instant: datetime
    late_ms: int
    missed: int = 0
    skipped: int = 0


@dataclass(slots=True)
class Entry:
    """A task under way through time. `base`: the last instant seen to; `following`: the next, `fires` when it is told
    (with jitter)."""

    task: PassTask
    base: datetime
    following: datetime
    fires: datetime
    missed: int = 0


class _Trigger(BaseTrigger):  # type: ignore[misc]  # the library has no types
    """Asks the entry; the scheduler may ask more than once for the same instant."""

    def __init__(self, timers: Timers, key: tuple[str, str]) -> None:
        self._timers, self._key = timers, key

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        """The library's question: when after `previous_fire_time`?"""
        return self._timers.next_fire(self._key, previous_fire_time, now)


class Timers:
    """The timetable of all tasks. `on_cue` is called in the scheduler's thread and must return at once."""

    def __init__(self, on_cue: Callable[[Cue], None], on_missed: Callable[[PassTask, int], None]) -> None:
        self._on_cue, self._on_missed = on_cue, on_missed
        self._entries: dict[tuple[str, str], Entry] = {}
        self._lock = threading.RLock()
        # A run that is late is never dropped by the library (its own grace is one second): lateness is ours to judge.
        self._scheduler = BackgroundScheduler(
            timezone=UTC,
            executors={"default": DebugExecutor()},
            job_defaults={"misfire_grace_time": None, "coalesce": True},
        )
        self._watch = clock.StepWatch()

    def start(self) -> None:
        """Begins to give cues."""
        self._scheduler.start()

    def stop(self) -> None:
        """Gives no more."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)

    def set_tasks(self, tasks: Iterable[PassTask], marks: dict[tuple[str, str], TaskProgress]) -> None:
        """Makes the timetable that of `tasks`. A task that stays keeps its times unless its timetable changed; one
        that is due stays due. `marks` says what is remembered of tasks that are new here."""
        now = clock.now()
        with self._lock:
            wanted = {task.key: task for task in tasks}
            spread_ms = max(SPREAD_MS, SPREAD_MS_EACH * len(wanted))
            gone = [key for key in self._entries if key not in wanted]
            for key in gone:
                del self._entries[key]
            planned: dict[tuple[str, str], datetime] = {}
            for key, task in wanted.items():
                entry = self._entries.get(key)
                if entry is not None and entry.task.schedule == task.schedule:
                    entry.task = task
                    continue
                if entry is not None:
                    self._retime(entry, task, now)
                else:
                    entry = self._entries[key] = self._first(task, marks.get(key), now, spread_ms)
                planned[key] = entry.fires
        self._tell_scheduler(gone, planned)

    def _first(self, task: PassTask, mark: TaskProgress | None, now: datetime, spread_ms: int) -> Entry:
        if mark is None:
            if isinstance(task.schedule.trigger, Interval):
                # Never run: due at once, told within the spread.
                spread = min(
                    max(spread_ms, PATIENT_MS) if task.what.of_archive else spread_ms, task.schedule.trigger.ms
                )
                delay = replace(task.schedule, jitter_ms=spread).delay(task.text, datetime.fromtimestamp(0, UTC))
                step = timedelta(milliseconds=task.schedule.trigger.ms)
                return Entry(task, now + delay - step, now + delay, now + delay)
            following = task.schedule.trigger.next_fire(now)
            return Entry(task, now, following, following + task.schedule.delay(task.text, following))
        base = clock.at(mark.due_ms)
        following = task.schedule.trigger.next_fire(base)
        return Entry(task, base, following, following + task.schedule.delay(task.text, following))

    def _retime(self, entry: Entry, task: PassTask, now: datetime) -> None:
        """A new timetable of a known task: counted from the last instant seen to, but nothing is due twice."""
        due_already = entry.following <= now
        entry.task = task
        if due_already:
            return  # stays due under the old timetable; the next one is of the new
        entry.following = task.schedule.trigger.next_fire(entry.base)
        if entry.following < now:
            # The new timetable had instants in the past that the old one never promised.
            entry.following = (
                now if isinstance(task.schedule.trigger, Interval) else task.schedule.trigger.next_fire(now)
            )
        entry.fires = entry.following + task.schedule.delay(task.text, entry.following)

    def _tell_scheduler(self, gone: Iterable[tuple[str, str]], planned: dict[tuple[str, str], datetime]) -> None:
        """Never under our lock: the scheduler asks us under its own, and each would wait for the other's for ever."""
        for key in gone:
            with contextlib.suppress(JobLookupError):
                self._scheduler.remove_job("\0".join(key))
        for key, fires in planned.items():
            self._scheduler.add_job(
                self._fire,
                _Trigger(self, key),
                args=[key],
                id="\0".join(key),
                replace_existing=True,
                next_run_time=fires,
                max_instances=1,
            )

    def next_fire(self, key: tuple[str, str], previous: datetime | None, now: datetime) -> datetime | None:
        """When the task fires next, given that it fired at `previous`."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            if previous is None or entry.fires > previous:
                return entry.fires
            # Asked before the cue was seen to: what comes after it.
            schedule = entry.task.schedule
            after = schedule.due(entry.base, max(now, previous), task=entry.task.text).following
            fires = after + schedule.delay(entry.task.text, after)
            return fires if fires > previous else previous + timedelta(milliseconds=1)

    def _fire(self, key: tuple[str, str]) -> None:
        now = clock.now()
        with self._lock:
            entry = self._entries.get(key)
            # After a step the times are of the wall before it, until `mind_the_clock` has moved them.
            if entry is None or entry.fires > now or self._watch.moved():
                return
            task = entry.task
            due = task.schedule.due(entry.base, now, task=task.text)
            runs = due.runs
            if not runs and not due.missed:
                # Nothing more by the new timetable than the instant that was due already.
                runs = (entry.following,)
            entry.base = max(due.latest, entry.following)
            entry.following = (
                due.following if due.following > entry.base else task.schedule.trigger.next_fire(entry.base)
            )
            entry.fires = entry.following + task.schedule.delay(task.text, entry.following)
            entry.missed += due.missed
        if due.missed:
            self._on_missed(task, due.missed)
        for instant in runs:
            late = _late_ms(task, instant, now)
            self._on_cue(Cue(task, instant, late, due.missed, due.skipped if instant == runs[-1] else 0))

    def times(self) -> dict[tuple[str, str], tuple[datetime, datetime]]:
        """Of each task: the last instant seen to, and when it fires next."""
        with self._lock:
            return {key: (entry.base, entry.fires) for key, entry in self._entries.items()}

    def mind_the_clock(self) -> float:
        """Call it now and then. Where the wall was stepped, intervals go on counting real time, and cron lines take
        the new wall; an instant that was seen to is never due again. Answers the step in seconds, 0.0 for none."""
        step = self._watch.stepped()
        if not step:
            return 0.0
        now = clock.now()
        planned: dict[tuple[str, str], datetime] = {}
        with self._lock:
            for key, entry in self._entries.items():
                trigger = entry.task.schedule.trigger
                if isinstance(trigger, Interval):
                    shift = timedelta(seconds=step)
                    entry.base, entry.following = entry.base + shift, entry.following + shift
                    entry.fires += shift
                else:
                    if step < 0 and entry.base > now:
                        # The next line may have been seen to before the wall went back; those after it come again.
                        entry.base = min(entry.base, trigger.next_fire(now))
                    entry.following = trigger.next_fire(max(entry.base, now) if step < 0 else entry.base)
                    entry.fires = entry.following + entry.task.schedule.delay(entry.task.text, entry.following)
                planned[key] = entry.fires
        self._tell_scheduler((), planned)
        return step


def _late_ms(task: PassTask, instant: datetime, now: datetime) -> int:
    return max(0, clock.ms_of(now) - clock.ms_of(instant + task.schedule.delay(task.text, instant)))


def due_now(tasks: Iterable[PassTask], marks: dict[tuple[str, str], TaskProgress], now: datetime) -> list[Cue]:
    """What is due at `now`, for a run that ends afterwards (``up --once``). A task that never ran is due."""
    cues: list[Cue] = []
    for task in tasks:
        mark = marks.get(task.key)
        if mark is None:
            cues.append(Cue(task, now, 0))
            continue
        due = task.schedule.due(clock.at(mark.due_ms), now, task=task.text)
        cues += [Cue(task, instant, _late_ms(task, instant, now), due.missed, due.skipped) for instant in due.runs[-1:]]
    return cues


def ordered(cues: Iterable[Cue]) -> list[Cue]:
    """Sweeps before trims before archives, longest due first."""
    rank: dict[str, int] = {"stalled": 0, "dead": 1}

    def key(cue: Cue) -> tuple[int, Any, str]:
        return rank.get(cue.task.name, 2), cue.instant, cue.task.text

    return sorted(cues, key=key)

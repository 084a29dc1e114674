"""A task's timetable, and what is due by it. Pure: instants in, instants out, no clock."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from emq_ops.policy.kinds import EVERY, SPAN, SWITCH, duration
from emq_ops.policy.options import option
from emq_ops.policy.triggers import Interval, Trigger, between

MAX_COUNTED = 10_000
"""Missed runs of a cron line are counted up to this many."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A task's timetable: its trigger, and what is done about runs that come late or were missed."""

    trigger: Trigger = option(EVERY, Interval(30_000), "an interval, or a cron expression and a time zone", key="every")
    jitter_ms: int = option(duration(), 0, "each run is put off by a part of it, the same on every host")
    max_late_ms: int | None = option(
        duration(1_000), None, "a run that could not start within it is missed, not run late"
    )
    timeout_ms: int | None = option(SPAN, 300_000, "how long one run may take")
    coalesce: bool = option(SWITCH, True, "runs that were all missed become one")

    def delay(self, task: str, instant: datetime) -> timedelta:
        """By how much jitter puts off the run of `task` that is due at `instant`: the same on every host."""
        if not self.jitter_ms:
            return timedelta(0)
        seed = hashlib.blake2b(f"{task}\0{instant.timestamp():.3f}".encode(), digest_size=8).digest()
        return timedelta(milliseconds=int.from_bytes(seed, "big") % (self.jitter_ms + 1))

    def due(self, last: datetime, now: datetime, *, task: str = "", limit: int = 1000) -> Due:
        """What is due at `now` when the run that was due at `last` was the latest one seen to.

        Pure bookkeeping on instants without jitter; but a run that jitter puts off is late only from then on (`task`:
        whose jitter). `limit` bounds how many runs are named when `coalesce` is off.
        """
        if isinstance(self.trigger, Interval):
            fires, count = self._interval_fires(self.trigger, last, now, limit)
        else:
            fires, count = self._cron_fires(last, now, limit)
        timely = [fire for fire in fires if self._timely(fire, now, task)]
        runs = timely[-1:] if self.coalesce else timely
        latest = fires[-1] if fires else last
        return Due(
            runs=tuple(runs),
            skipped=count - len(runs) if runs else 0,
            missed=0 if runs else count,
            latest=latest,
            following=self.trigger.next_fire(latest if isinstance(self.trigger, Interval) else max(latest, now)),
        )

    def _timely(self, instant: datetime, now: datetime, task: str) -> bool:
        """Whether the run of `instant` may still start."""
        if self.max_late_ms is None:
            return True
        return now - instant - self.delay(task, instant) <= timedelta(milliseconds=self.max_late_ms)

    @staticmethod
    def _interval_fires(trigger: Interval, last: datetime, now: datetime, limit: int) -> tuple[list[datetime], int]:
        step = timedelta(milliseconds=trigger.ms)
        count = max(0, math.floor((now - last) / step))
        first = max(1, count - limit + 1)
        return [(last + step * k).astimezone(UTC) for k in range(first, count + 1)], count

    def _cron_fires(self, last: datetime, now: datetime, limit: int) -> tuple[list[datetime], int]:
        fires: list[datetime] = []
        for instant in between(self.trigger, last, now):
            fires.append(instant)
            if len(fires) == MAX_COUNTED:
                fires = [*fires[:-1], self._latest(now)]
                break
        return fires[-limit:], len(fires)

    def _latest(self, now: datetime) -> datetime:
        """The last instant up to `now`, where counting all of them would take too long."""
        window = timedelta(hours=1)
        while True:
            found = list(between(self.trigger, now - window, now))
            if found:
                return found[-1]
            window *= 2


@dataclass(frozen=True, slots=True)
class Due:
    """`runs`: instants to run now, oldest first (empty: nothing to do, or all too late); `skipped`: how many due runs
    were folded into `runs`; `missed`: how many were too late to run at all; `latest`: the last instant seen to, to be
    remembered; `following`: the next instant."""

    runs: tuple[datetime, ...]
    skipped: int
    missed: int
    latest: datetime
    following: datetime

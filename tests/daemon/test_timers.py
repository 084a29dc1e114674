"""The timetable over a wall clock that is set forward and back: no run twice, none never."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import apscheduler.schedulers.base
import pytest

from emq_ops.daemon import clock
from emq_ops.daemon.tasks import PassTask
from emq_ops.daemon.timers import Cue, Timers, due_now
from emq_ops.ledger.marks import TaskProgress
from emq_ops.passes.sweep.declared import SWEEP
from emq_ops.policy.models import StalledPolicy
from emq_ops.policy.schedule import Schedule
from emq_ops.policy.triggers import parse_every
from tests.support.daemons import wait_for


class Wall:
    """The host's wall clock, moved by `shift`; what the scheduler's library and the daemon read."""

    def __init__(self) -> None:
        self.shift = timedelta(0)

    def now(self, zone: tzinfo | None = None) -> datetime:
        return datetime.now(zone) + self.shift

    def __getattr__(self, name: str) -> Any:
        return getattr(datetime, name)


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> Wall:
    made = Wall()
    monkeypatch.setattr(apscheduler.schedulers.base, "datetime", made)
    monkeypatch.setattr(clock, "datetime", made)
    return made


def task(every: str, queue: str = "q", **options: Any) -> PassTask:
    schedule = Schedule(parse_every(every), **options)
    return PassTask(queue, SWEEP, StalledPolicy(), schedule)


class Told:
    """What a Timers told."""

    def __init__(self, *tasks: PassTask, marks: dict[tuple[str, str], TaskProgress] | None = None) -> None:
        self.cues: list[Cue] = []
        self.missed: list[tuple[str, int]] = []
        self.more = threading.Event()
        self.timers = Timers(self._cue, lambda task, count: self.missed.append((task.text, count)))
        self.timers.set_tasks(tasks, marks or {})
        self.timers.start()

    def _cue(self, cue: Cue) -> None:
        self.cues.append(cue)
        self.more.set()

    def __enter__(self) -> Told:
        return self

    def __exit__(self, *_: object) -> None:
        self.timers.stop()


def test_an_interval_goes_on_when_the_wall_is_set_back_an_hour(wall: Wall) -> None:
    with Told(task("100ms")) as told:
        wait_for(lambda: len(told.cues) >= 3)
        wall.shift = timedelta(hours=-1)
        assert told.timers.mind_the_clock() == pytest.approx(-3600, abs=1)
        before = len(told.cues)
        wait_for(lambda: len(told.cues) >= before + 5, 30)
        instants = [cue.instant for cue in told.cues[before:]]
        assert instants == sorted(set(instants))
        assert told.missed == []


def test_an_interval_is_not_caught_up_when_the_wall_is_set_forward(wall: Wall) -> None:
    with Told(task("100ms")) as told:
        wait_for(lambda: len(told.cues) >= 2)
        wall.shift = timedelta(hours=1)
        told.timers.mind_the_clock()
        before = len(told.cues)
        wait_for(lambda: len(told.cues) >= before + 3, 30)
        # Real time went on: at most the one cue that the library gave before it was told.
        assert sum(cue.skipped > 100 for cue in told.cues) <= 1


def test_a_cron_instant_that_ran_does_not_come_again(wall: Wall) -> None:
    ran = datetime(2026, 11, 29, 3, 0, tzinfo=UTC)
    wall.shift = ran + timedelta(minutes=1) - datetime.now(UTC)
    nightly = task("0 3 * * *")
    with Told(nightly, marks={nightly.key: TaskProgress("q", "stalled", clock.ms_of(ran))}) as told:
        told.timers.mind_the_clock()
        wall.shift -= timedelta(hours=1)  # it is 02:01 again, and 03:00 will come again
        assert told.timers.mind_the_clock() < -3500
        _, fires = told.timers.times()[nightly.key]
        assert fires == ran + timedelta(days=1)
        assert told.cues == []


def test_a_cron_instant_that_was_skipped_runs_once_late(wall: Wall) -> None:
    before = datetime(2026, 11, 29, 2, 30, tzinfo=UTC)
    wall.shift = before - datetime.now(UTC)
    nightly = task("0 3 * * *")
    mark = TaskProgress("q", "stalled", clock.ms_of(before - timedelta(hours=23, minutes=30)))
    with Told(nightly, marks={nightly.key: mark}) as told:
        told.timers.mind_the_clock()
        wall.shift += timedelta(hours=1)  # 03:30: three o'clock never was
        told.timers.mind_the_clock()
        wait_for(lambda: told.cues)
        assert [cue.instant for cue in told.cues] == [datetime(2026, 11, 29, 3, 0, tzinfo=UTC)]
        assert 1_790_000 <= told.cues[0].late_ms <= 1_900_000


def test_c08_by_the_timetable() -> None:
    now = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
    late = task("5m")
    cues = due_now([late], {late.key: TaskProgress("q", "stalled", clock.ms_of(now - timedelta(minutes=30)))}, now)
    assert [cue.skipped for cue in cues] == [5]
    trim = task("0 3 * * *", max_late_ms=900_000)
    at = datetime(2026, 11, 29, 3, 10, tzinfo=UTC)
    mark = {trim.key: TaskProgress("q", "stalled", clock.ms_of(at - timedelta(hours=24, minutes=10)))}
    assert [cue.late_ms for cue in due_now([trim], mark, at)] == [600_000]
    assert due_now([trim], mark, at + timedelta(minutes=10)) == []


def test_a_run_that_jitter_puts_off_is_not_missed(wall: Wall) -> None:
    nightly = task("0 3 * * *", jitter_ms=6 * 3_600_000, max_late_ms=60_000)
    instant = datetime(2026, 11, 29, 3, 0, tzinfo=UTC)
    put_off = nightly.schedule.delay(nightly.text, instant)
    assert put_off > timedelta(minutes=5)
    mark = {nightly.key: TaskProgress("q", "stalled", clock.ms_of(instant - timedelta(days=1)))}
    wall.shift = instant + put_off + timedelta(seconds=1) - datetime.now(UTC)
    with Told(nightly, marks=mark) as told:
        wait_for(lambda: told.cues or told.missed)
        assert ([cue.instant for cue in told.cues], told.missed) == ([instant], [])
    assert [cue.late_ms for cue in due_now([nightly], mark, instant + put_off)] == [0]
    assert due_now([nightly], mark, instant + put_off + timedelta(seconds=61)) == []


def test_c09_restarts_every_50_minutes_do_not_starve_an_hourly_task() -> None:
    hourly = task("1h")
    start = datetime(2026, 11, 29, 8, 0, tzinfo=UTC)
    mark = TaskProgress("q", "stalled", clock.ms_of(start))
    runs = 0
    for restart in range(1, 6):  # 50, 100, ... 250 minutes
        now = start + timedelta(minutes=50 * restart)
        for cue in due_now([hourly], {hourly.key: mark}, now):
            runs += 1
            mark.due_ms = clock.ms_of(cue.instant)
    assert runs >= 3


def test_a_changed_timetable_keeps_what_is_due_and_repeats_nothing(wall: Wall) -> None:
    slow, fast = task("1h"), task("200ms")
    mark = TaskProgress("q", "stalled", clock.ms_of(clock.now() - timedelta(minutes=59)))
    with Told(slow, marks={slow.key: mark}) as told:
        told.timers.set_tasks([fast], {})
        wait_for(lambda: len(told.cues) >= 3)
        assert told.missed == []
        told.timers.set_tasks([], {})
        count = len(told.cues)
        assert told.timers.times() == {}
        told.timers.set_tasks([slow], {slow.key: TaskProgress("q", "stalled", clock.ms_of(clock.now()))})
        assert len(told.cues) <= count + 1


def test_first_runs_are_spread_and_jitter_is_the_same_everywhere() -> None:
    many = [task("1h", queue=f"q{n}") for n in range(50)]
    with Told(*many) as told:
        times = {fires for _, fires in told.timers.times().values()}
        assert len(times) > 25
    jittered = task("1h", jitter_ms=60_000)
    instant = datetime(2026, 1, 1, tzinfo=UTC)
    assert jittered.schedule.delay(jittered.text, instant) == jittered.schedule.delay(jittered.text, instant)


@pytest.mark.parametrize("hours", [-5, 5], ids=["back", "forward"])
def test_a_step_that_the_library_sees_first_costs_at_most_an_interval(wall: Wall, hours: int) -> None:
    """The scheduler wakes by itself between the step and the look at the clock that comes twice a second."""
    with Told(task("200ms"), task("200ms", "r")) as told:
        wait_for(lambda: len(told.cues) >= 2)
        wall.shift = timedelta(hours=hours)
        woken = clock.steady()
        wait_for(lambda: clock.steady() - woken > 0.5)
        told.timers.mind_the_clock()
        for _, fires in told.timers.times().values():
            assert fires - clock.now() <= timedelta(seconds=0.5)
        before = {cue.task.queue: 0 for cue in told.cues}
        told.cues.clear()
        wait_for(lambda: {cue.task.queue for cue in told.cues} == before.keys(), 20)
        assert sum(cue.skipped > 100 for cue in told.cues) == 0


def test_a_timetable_that_changes_while_cues_are_given_stops_nothing() -> None:
    timers = Timers(lambda cue: None, lambda task, count: None)
    tasks = [task("10ms", queue=f"q{n}") for n in range(40)]

    def change() -> None:
        for turn in range(40):
            timers.set_tasks(tasks if turn % 2 else tasks[:1], {})

    timers.set_tasks(tasks, {})
    timers.start()
    changing = threading.Thread(target=change, daemon=True)
    changing.start()
    changing.join(30)
    assert not changing.is_alive(), "the scheduler and who changes its timetable wait for each other"
    timers.stop()

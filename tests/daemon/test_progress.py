"""What a host whose clock was wrong has written: it says nothing of now, and nothing waits for it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from emq_ops.daemon import clock
from emq_ops.daemon.progress import ProgressBook
from emq_ops.daemon.timers import Cue
from emq_ops.ledger import marks
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.marks import TaskProgress
from tests.daemon.test_timers import Told, Wall, task, wall
from tests.support.daemons import wait_for

__all__ = ["wall"]
HOURS_MS = 5 * 3_600_000
INTERVAL_MS = 300


def written(ledger: Ledger, shift_ms: int) -> None:
    """As a daemon writes it whose clock is `shift_ms` off."""
    at = clock.now_ms() + shift_ms
    marks.save(ledger, [TaskProgress("q", "stalled", at, next_ms=at + INTERVAL_MS, started_ms=at, ended_ms=at)])


@pytest.mark.parametrize("shift_ms", [HOURS_MS, -HOURS_MS], ids=["ahead", "behind"])
def test_a_task_of_a_host_with_another_clock_runs_within_an_interval(ledger: Ledger, shift_ms: int) -> None:
    written(ledger, shift_ms)
    known = ProgressBook(ledger).load({"q"})
    since = clock.steady()
    with Told(task(f"{INTERVAL_MS}ms"), marks=known) as told:
        wait_for(lambda: told.cues, 20)
    assert clock.steady() - since < 10


def test_what_is_written_now_takes_the_place_of_an_instant_to_come(ledger: Ledger) -> None:
    written(ledger, HOURS_MS)
    book = ProgressBook(ledger)
    book.load({"q"})
    one = task(f"{INTERVAL_MS}ms")
    cue = Cue(one, clock.now(), 0)
    book.begun(cue)
    book.ended(cue, None, idle=False)
    [found] = marks.load(ledger).values()
    assert found.due_ms <= clock.now_ms()
    assert found.runs == 1
    written(ledger, -1_000)  # but an older one does not
    assert marks.load(ledger)["q", "stalled"].runs == 1


def test_a_clock_that_was_set_back_in_a_running_daemon_is_followed(ledger: Ledger, wall: Wall) -> None:
    book, one = ProgressBook(ledger), task("1s")
    wall.shift = timedelta(hours=5)
    for _ in range(2):
        cue = Cue(one, clock.now(), 0)
        book.begun(cue)
        book.ended(cue, None, idle=False)
        wall.shift = timedelta(0)
    assert book.mark(one).due_ms <= clock.now_ms()
    assert marks.load(ledger)[one.key].due_ms <= clock.now_ms()


@pytest.mark.parametrize("hours", [-5, 5])
def test_a_cron_line_loses_one_run_at_the_most_when_the_clock_steps(wall: Wall, hours: int) -> None:
    with Told(task("* * * * *")) as told:
        wall.shift = timedelta(hours=hours)
        told.timers.mind_the_clock()
        [(_, fires)] = told.timers.times().values()
        assert fires - clock.now() <= timedelta(seconds=121)


def test_a_line_that_was_seen_to_is_not_run_again_when_the_clock_goes_back(wall: Wall) -> None:
    """The wall stood behind the line when the run was told; an hour back, that line comes once more."""
    with Told(task("30 2 * * *")) as told:
        [(_, first)] = told.timers.times().values()
        wall.shift = first - clock.now() + timedelta(seconds=1)
        told.timers.mind_the_clock()
        wait_for(lambda: told.cues, 20)
        wall.shift -= timedelta(hours=1)
        told.timers.mind_the_clock()
        [(_, again)] = told.timers.times().values()
        assert again >= first + timedelta(hours=20)

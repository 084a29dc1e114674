"""Many first folds at once: no sweep waits for them, and none of them is forgotten."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from emq_ops.daemon import clock, turns
from emq_ops.daemon.pools import ThreadPool
from emq_ops.daemon.timers import Cue
from emq_ops.daemon.turns import Turns
from tests.daemon.test_timers import task

JOBS = 40
JOB_SECONDS = 0.02


@pytest.fixture
def pool() -> Iterator[ThreadPool]:
    made = ThreadPool("test", 2)
    yield made
    assert made.drain(30)
    made.stop()


class Steady:
    """The steady clock, as far as it was moved."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 1000.0
        monkeypatch.setattr(clock, "steady", lambda: self.seconds)


def work() -> None:
    """So much processor time, however busy the machine is."""
    until = time.thread_time() + JOB_SECONDS
    while time.thread_time() < until:
        pass


def rounds(under: Turns, pool: ThreadPool, steady: Steady, most: int, *, late_s: float) -> int:
    """How many rounds of 100 ms it takes until all have begun, each round's runs to their end."""
    ready = {(f"q{n}", "stalled"): Cue(task("1s", f"q{n}"), datetime.now(UTC), 0) for n in range(JOBS)}
    under.waiting = dict.fromkeys(ready, clock.steady())
    for number in range(1, most + 1):
        under.looked_at(late_s)
        for cue, _ in under.take(ready):
            del ready[cue.task.key]
            pool.submit(work)
        assert pool.drain(30)
        if not ready:
            return number
        steady.seconds += 0.1
    pytest.fail(f"{len(ready)} of {JOBS} never had their turn")


def test_runs_get_a_share_of_a_core_while_others_wait(pool: ThreadPool, monkeypatch: pytest.MonkeyPatch) -> None:
    steady = Steady(monkeypatch)
    assert rounds(Turns(pool, 2), pool, steady, 10, late_s=0.0) <= JOBS // (2 * turns.AHEAD)
    seconds = JOBS * JOB_SECONDS - turns.BURST_SECONDS  # of a core, at SHARE of it
    took = 0.1 * rounds(Turns(pool, 2), pool, steady, 1000, late_s=2 * turns.LATE_SECONDS)
    assert took >= seconds / turns.SHARE * 0.8


def test_no_more_begin_than_there_are_threads_for(pool: ThreadPool) -> None:
    go = threading.Event()
    under = Turns(pool, 2)
    ready = {(f"q{n}", "stalled"): Cue(task("1s", f"q{n}"), datetime.now(UTC), 0) for n in range(JOBS)}
    under.waiting = dict.fromkeys(ready, clock.steady())
    under.looked_at(2 * turns.LATE_SECONDS)
    for _ in range(3):
        for _cue, _since in under.take(ready):
            pool.submit(lambda: assert_set(go))
    assert pool.busy == 2
    assert len(under.waiting) == JOBS - 2
    gone = next(iter(under.waiting))
    del ready[gone]
    under.take(ready)
    assert gone not in under.waiting  # another daemon's now
    go.set()


def assert_set(event: threading.Event) -> None:
    assert event.wait(30)

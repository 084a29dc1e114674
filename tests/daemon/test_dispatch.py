"""From cues to runs: which policy a run goes by when a new revision comes in between."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from emq_ops.daemon.dispatch import Dispatcher
from emq_ops.daemon.events import TaskLate
from emq_ops.daemon.pools import Sizes
from emq_ops.daemon.progress import ProgressBook
from emq_ops.daemon.requests import serve
from emq_ops.daemon.tasks import PassTask, tasks_of_queue
from emq_ops.daemon.timers import Cue
from emq_ops.daemon.work import PassRunner
from emq_ops.ledger import bounds, holds, requests, runs
from emq_ops.ledger.ledger import Ledger, open_ledger
from emq_ops.ledger.pending_runs import IdleBook
from emq_ops.passes.events import nowhere
from emq_ops.passes.frame.context import Services
from emq_ops.passes.lease.kept import GivenLease
from emq_ops.passes.observe.mark_idle import mark_idle_queues
from emq_ops.policy.models import DeadPolicy
from emq_ops.policy.rows import as_row
from emq_ops.protocol.fence import Fence
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions.reads import JobState, job_state
from tests.support.daemons import wait_for
from tests.support.orders import lapsed
from tests.support.passing import dead_of, kill_row, leading

STALLED, DEAD = "stalled", "dead"
KEY = ("orders", STALLED)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with open_ledger(f"sqlite:///{tmp_path}/state.db") as opened:
        yield opened


class Led:
    """The leases of a daemon that leads this queue."""

    def __init__(self, fence: Fence) -> None:
        self.fence = fence

    def ready(self, _queue: str) -> bool:
        return True

    def lease_of(self, _queue: str) -> GivenLease:
        return GivenLease(self.fence)


@pytest.fixture
def dispatcher(server: Server, ledger: Ledger) -> Iterator[Dispatcher]:
    with leading(server, ledger, "orders") as fence:
        made = Dispatcher(
            PassRunner(Services(server, ledger)),
            Led(fence),
            ProgressBook(ledger),
            IdleBook(ledger, "test"),
            nowhere,
            Sizes(1, 1, 1_000),
        )
        yield made
        made.end()
        assert made.drain(10)


def stalled(**policy: Any) -> PassTask:
    wanted = {"stalled": {"every": "1s", "lease": "30s", "restart": "count", **policy}}
    return next(task for task in tasks_of_queue("orders", wanted, {})[0] if task.name == STALLED)


def due(task: PassTask) -> Cue:
    return Cue(task, datetime.now(UTC), 0)


def through(dispatcher: Dispatcher) -> None:
    dispatcher.turn()
    wait_for(lambda: dispatcher.running == 0 and dispatcher.waiting == 0)


@pytest.mark.parametrize("taken_up", [False, True], ids=["cued", "waiting"])
def test_a_run_that_is_due_and_not_begun_goes_by_the_new_policy(
    server: Server, dispatcher: Dispatcher, taken_up: bool
) -> None:
    old, new = stalled(max_stalled=1), stalled(max_stalled=5)
    job = lapsed(server, 1)[0]
    dispatcher.keep({KEY: old})
    if taken_up:
        assert dispatcher.occupy(KEY)  # a run of the task is in hand
    dispatcher.cue(due(old))
    if taken_up:
        dispatcher.turn()
    dispatcher.keep({KEY: new})
    if taken_up:
        dispatcher.lend(KEY, lambda: None, stores=False)
        wait_for(lambda: dispatcher.running == 0)
    through(dispatcher)
    assert job_state(Queue(server, "orders"), job) is JobState.PENDING


@pytest.mark.parametrize("taken_up", [False, True], ids=["cued", "waiting"])
def test_what_the_new_revision_no_longer_has_is_not_begun(
    server: Server, dispatcher: Dispatcher, taken_up: bool
) -> None:
    job = lapsed(server, 1)[0]
    dispatcher.keep({KEY: stalled(max_stalled=1)})
    if taken_up:
        assert dispatcher.occupy(KEY)
    dispatcher.cue(due(stalled(max_stalled=1)))
    if taken_up:
        dispatcher.turn()
    dispatcher.keep({})
    if taken_up:
        dispatcher.lend(KEY, lambda: None, stores=False)
        wait_for(lambda: dispatcher.running == 0)
    through(dispatcher)
    assert job_state(Queue(server, "orders"), job) is JobState.ACTIVE


def test_a_run_that_waits_for_a_thread_begins_late(
    server: Server, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[TaskLate] = []
    monkeypatch.setattr(dispatcher, "emit", said.append)
    monkeypatch.setattr("emq_ops.daemon.dispatch.LATE_MS", 300)
    lapsed(server, 1)
    over = threading.Event()

    def keep_the_only_thread() -> None:
        over.wait(30)

    assert dispatcher.occupy(("mail", STALLED))
    dispatcher.lend(("mail", STALLED), keep_the_only_thread, stores=False)
    dispatcher.keep({KEY: stalled()})
    dispatcher.cue(due(stalled()))
    dispatcher.turn()
    assert (dispatcher.running, dispatcher.book.mark(stalled()).started_ms) == (2, None)
    threading.Timer(0.4, over.set).start()
    wait_for(lambda: dispatcher.running == 0)
    [late] = [event for event in said if isinstance(event, TaskLate)]
    assert late.late_ms == dispatcher.book.mark(stalled()).late_ms >= 300


TRIM = ("orders", DEAD)


def trim_task() -> PassTask:
    return tasks_of_queue("orders", {"dead": {"every": "1s", "keep": 1, "archive": False}}, {})[0][0]


def bound_to(ledger: Ledger, revision: int, ids: list[str]) -> None:
    with ledger.write() as connection:
        bounds.put(connection, "orders", bounds.DEAD, revision, ids, 1)


def bound(ledger: Ledger) -> bounds.Bound | None:
    with ledger.read() as connection:
        return bounds.of(connection, "orders")


def idle_runs(dispatcher: Dispatcher, ledger: Ledger) -> int:
    """How many runs are counted as idle, all together."""
    dispatcher.idle.flush()
    return sum(sum(run.counts.values()) for run in runs.latest(ledger) if run.kind == "idle")


def run_trim(dispatcher: Dispatcher) -> None:
    dispatcher.keep({TRIM: trim_task()})
    dispatcher.cue(due(trim_task()))
    through(dispatcher)


def calm(dispatcher: Dispatcher, server: Server, ledger: Ledger) -> None:
    for queue, state in mark_idle_queues(server, ledger, ["orders"]).items():
        dispatcher.probe.found_idle(queue, state)


def test_a_trim_without_a_dead_job_is_idle_and_spends_its_list(
    server: Server, ledger: Ledger, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound_to(ledger, 3, ["JOB0SSBKAh61tG"])
    calm(dispatcher, server, ledger)
    monkeypatch.setattr(dispatcher.runner, "run", None)  # a pass of its own would fail
    run_trim(dispatcher)
    assert bound(ledger) is None
    assert idle_runs(dispatcher, ledger) == 1
    mark = dispatcher.book.mark(trim_task())
    assert (mark.runs, mark.failures) == (1, 0)


def test_a_trim_is_no_more_idle_once_a_job_died(server: Server, ledger: Ledger, dispatcher: Dispatcher) -> None:
    calm(dispatcher, server, ledger)
    q = Queue(server, "orders")
    jobs = kill_row(q, 3)
    run_trim(dispatcher)
    assert dead_of(q) == jobs[-1:]
    kill_row(q, 2)
    bound_to(ledger, 4, [jobs[-1]])
    run_trim(dispatcher)
    assert jobs[-1] not in dead_of(q)
    assert (len(dead_of(q)), bound(ledger)) == (2, None)


def test_the_list_of_a_held_queue_stays(server: Server, ledger: Ledger, dispatcher: Dispatcher) -> None:
    bound_to(ledger, 3, [])
    calm(dispatcher, server, ledger)
    holds.hold(ledger, holds.Hold("orders", 1, server.now_ms("orders") + 60_000, "ops"))
    run_trim(dispatcher)
    assert bound(ledger) is not None


def test_a_list_of_a_later_revision_is_not_spent_by_an_earlier_look(ledger: Ledger) -> None:
    bound_to(ledger, 3, [])
    work = trim_task().what.loaded
    seen = work.limits(ledger, ["orders", "mail"])
    bound_to(ledger, 4, ["JOB0SSBKAh61tG"])
    assert work.settle_idle(ledger, seen, ["orders", "mail"]) == set()
    left = bound(ledger)
    assert left is not None
    assert left.revision == 4


@pytest.mark.parametrize("applied", [True, False])
def test_what_is_asked_for_by_other_bounds_is_not_the_trim_that_was_planned(
    server: Server, ledger: Ledger, dispatcher: Dispatcher, applied: bool
) -> None:
    q = Queue(server, "orders")
    jobs = kill_row(q, 3)
    bound_to(ledger, 3, jobs[:1])
    asked = {"policy": as_row(DeadPolicy(keep=0, archive=False)), "applied": applied}
    request = requests.ask(ledger, "trim", "orders", asked, "test")
    assert serve(ledger, ["orders"], dispatcher, lambda _: 30_000) == 1
    wait_for(lambda: (answer := requests.get(ledger, request)) is not None and answer.report is not None)
    assert dead_of(q) == (jobs[1:] if applied else [])
    assert (bound(ledger) is None) is applied

"""From cues to runs: which policy a run goes by when a new revision comes in between."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from emq_ops.daemon.book import Book
from emq_ops.daemon.dispatch import Dispatcher
from emq_ops.daemon.probe import Probe
from emq_ops.daemon.tasks import STALLED, Task, tasks_of_queue
from emq_ops.daemon.timers import Cue
from emq_ops.daemon.work import Stores, Worker
from emq_ops.ledger.ledger import Ledger, open_ledger
from emq_ops.ledger.runs import IdleBook
from emq_ops.passes.events import nowhere
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions.reads import JobState, job_state
from tests.daemon.test_daemon import lapsed
from tests.support.daemons import wait_for
from tests.support.passing import leading

KEY = ("orders", STALLED)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with open_ledger(f"sqlite:///{tmp_path}/state.db") as opened:
        yield opened


@pytest.fixture
def dispatcher(server: Server, ledger: Ledger) -> Iterator[Dispatcher]:
    with leading(server, ledger, "orders") as fence:
        made = Dispatcher(
            Worker(server, ledger, Stores(None, None), list, nowhere),
            Probe(server),
            Book(ledger),
            IdleBook(ledger, "test"),
            nowhere,
            fence_of=lambda _queue: fence,
            lease_ms_of=lambda _queue: 30_000,
            away=lambda _queue: False,
            threads=1,
            archive_threads=1,
            backoff_ms=1_000,
        )
        yield made
        made.end()
        assert made.drain(10)


def stalled(**policy: Any) -> Task:
    wanted = {"stalled": {"every": "1s", "lease": "30s", "restart": "count", **policy}}
    return next(task for task in tasks_of_queue("orders", wanted, {})[0] if task.name == STALLED)


def due(task: Task) -> Cue:
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

"""More queues than a daemon can hurry through: no lease is lost, and what it does not keep up with is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from emq_ops.daemon import clock
from emq_ops.daemon.behind import LOOKS, Behind
from emq_ops.daemon.dispatch import Dispatcher
from emq_ops.daemon.timers import Cue, Timers
from emq_ops.ledger import alerts, marks
from emq_ops.ledger.ledger import Ledger, open_ledger
from emq_ops.passes.events import Event, nowhere
from emq_ops.passes.lease.queue_lease import QueueLease
from emq_ops.protocol.ids import mint
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from tests.daemon.test_dispatch import dispatcher, stalled  # noqa: F401 - a fixture
from tests.support.daemons import site, wait_for
from tests.support.valkey import Valkey

CONFIG = """
server: {{url: "{url}"}}
state: {{url: "sqlite:///state.db"}}
archive: {{local: "sqlite:///archive.db", remote: {{url: "file:bucket"}}}}
daemon: {{lease: {lease}}}
queues:
  "q-*":
    stalled: {{every: {every}}}
    dead: {{every: {every}, keep: 1000}}
    streams: {{completions: {{every: {every}, keep: 1000}}}}
"""
TASKS = ("stalled", "dead", "stream:completions")


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with open_ledger(f"sqlite:///{tmp_path}/state.db") as opened:
        yield opened


@pytest.mark.long
@pytest.mark.parametrize(
    ("queues", "every", "lease"),
    [(300, "2s", "5s"), pytest.param(3_000, "30s", "15s", marks=pytest.mark.soak(minutes=3))],
)
def test_a_slow_server_and_many_queues_cost_no_lease(
    tmp_path: Path, valkey: Valkey, server: Server, queues: int, every: str, lease: str
) -> None:
    names = [f"q-{n:04}" for n in range(queues)]
    for name in names:
        server.write("ZADD", keys_of(name).pending, 0, mint())
    over = threading.Event()

    def slow() -> None:
        with valkey.client() as client:
            while not over.wait(0.3):
                client.execute_command("CLIENT", "PAUSE", 200)

    with site(tmp_path / "s", CONFIG.format(url=valkey.url, lease=lease, every=every)) as here:
        here.run("apply", "--yes")
        thread = threading.Thread(target=slow)
        thread.start()
        try:
            daemon, since = here.up(), time.monotonic()
            with open_ledger(f"sqlite:///{here.folder}/state.db") as ledger:
                wanted = {(name, task) for name in names for task in TASKS}

                def ran_twice() -> bool:
                    found = marks.load(ledger)
                    return all((mark := found.get(key)) is not None and mark.runs >= 2 for key in wanted)

                wait_for(lambda: time.monotonic() - since > 6 and ran_twice(), 150)
        finally:
            over.set()
            thread.join()
        assert not daemon.events("lease_lost")
        assert not daemon.events("task_failed")
        daemon.stop()


class Later:
    """The host's clocks, so many seconds ahead."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 0.0
        steady = clock.steady
        monkeypatch.setattr(clock, "steady", lambda: steady() + self.seconds)
        monkeypatch.setattr(clock, "now", lambda: datetime.now(UTC) + timedelta(seconds=self.seconds))


def test_what_is_due_for_long_is_told_once_and_its_end_too(
    dispatcher: Dispatcher,  # noqa: F811
    ledger: Ledger,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[Event] = []
    later = Later(monkeypatch)
    behind = Behind(dispatcher, Timers(dispatcher.cue, lambda _task, _count: None), ledger, said.append)
    task, busy = stalled(), threading.Event()
    dispatcher.keep({task.key: task})
    assert dispatcher.occupy(("other", "stalled"))
    dispatcher.lend(("other", "stalled"), lambda: busy.wait(60) and None, stores=False)  # the only thread
    dispatcher.cue(Cue(task, datetime.now(UTC), 0))
    dispatcher.turn()
    for _ in range(2 * LOOKS):
        behind.look()
    assert (behind.count, said) == (0, [])
    later.seconds += 11
    for _ in range(2 * LOOKS):
        behind.look()
    assert behind.count == 1
    assert behind.longest_s >= 11
    assert [event.name for event in said] == ["alerted"]
    [told] = alerts.listing(ledger)
    assert (told.kind, told.facts["queue"], told.facts["task"]) == ("behind", "orders", "stalled")
    busy.set()
    wait_for(lambda: dispatcher.running == 0)
    for _ in range(2 * LOOKS):
        behind.look()
    assert behind.count == 0
    assert [event.name for event in said] == ["alerted", "caught_up"]


def test_ps_shows_a_task_that_its_daemon_never_came_to(tmp_path: Path, valkey: Valkey, server: Server) -> None:
    server.write("ZADD", Queue(server, "q-0").keys.pending, 0, mint())
    with site(tmp_path / "s", CONFIG.format(url=valkey.url, lease="60s", every="30s")) as here:
        here.run("apply", "--yes")
        with open_ledger(f"sqlite:///{here.folder}/state.db") as ledger:
            lease = QueueLease(server, ledger, "q-0", role="daemon", lease_ms=60_000, emit=nowhere)
            lease.try_acquire()
            assert f"leases are held ({lease.me}): it can't write" in here.run("ps").err  # it is not said to be gone
            now = clock.now_ms()
            marks.beat(ledger, marks.Living(str(lease.me), now - 95_000, now, 1, 1, {}))
            rows = {row["task"]: row["overdue_ms"] for row in here.json("ps")}
            lease.release()
    assert all(65_000 <= rows[task] < 95_000 for task in TASKS)

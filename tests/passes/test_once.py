"""One pass from a command: alone, after a dead one, and through a live daemon."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from emq_ops.ledger import requests, runs
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.requests import Request
from emq_ops.passes.frame.context import Context, Services
from emq_ops.passes.frame.once import Patience, RequestFailedError, run_once
from emq_ops.passes.frame.order import Order
from emq_ops.passes.lease.holder import DAEMON
from emq_ops.passes.lease.queue_lease import HeldQueueError, QueueLease
from emq_ops.passes.sweep.declared import SWEEP
from emq_ops.passes.sweep.report import SweepReport
from emq_ops.policy.models import DeadPolicy, StalledPolicy, StreamPolicy
from emq_ops.policy.rows import as_row, from_row
from emq_ops.protocol.errors import BadInputError, EmqError, FenceError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from tests.support.passing import stall, sweep, until
from tests.support.serving import serve_requests
from tests.support.toy_pass import ACT, TOY, ToyPolicy


def once(server: Server, ledger: Ledger, **patience: Any) -> dict[str, Any]:
    order = Order("mail", StalledPolicy(max_stalled=2))
    return run_once(Services(server, ledger), SWEEP, order, Patience(**patience))


def test_alone(server: Server, ledger: Ledger, mail: Queue) -> None:
    stall(mail, 3)
    report = once(server, ledger)
    assert (report["recovered"], report["status"]) == (3, "done")
    assert "through" not in report
    assert QueueLease(server, ledger, "mail").try_acquire().token == 2  # the lease was given up


def test_beside_another_command_it_waits(server: Server, ledger: Ledger, mail: Queue) -> None:
    other = QueueLease(server, ledger, "mail")
    other.acquire()
    with pytest.raises(HeldQueueError, match="command"):
        once(server, ledger, wait_seconds=0.05)
    assert requests.waiting(ledger) == []  # only a daemon is asked
    threading.Timer(0.1, other.release).start()
    assert once(server, ledger)["status"] == "done"


def test_a_wait_that_is_felt_is_told_with_its_bound(server: Server, ledger: Ledger, mail: Queue) -> None:
    silent = QueueLease(server, ledger, "mail", role=DAEMON, lease_ms=60_000)
    silent.acquire()
    lines: list[str] = []
    with pytest.raises(HeldQueueError):
        once(server, ledger, answer_seconds=1.5, tell=lines.append)
    assert lines == [f"mail: waiting for the daemon {silent.me}, its report on what we asked for: up to 0 s"]


class Daemon:
    """A leader that serves requests, as the daemon does."""

    def __init__(self, server: Server, ledger: Ledger) -> None:
        self.server, self.ledger = server, ledger
        self.leadership = QueueLease(server, ledger, "mail", role=DAEMON, lease_ms=60_000)
        self.fence = self.leadership.acquire()
        self.over = threading.Event()
        self.fault: EmqError | None = None
        self.thread = threading.Thread(target=self.loop)

    def loop(self) -> None:
        while not self.over.wait(0.01):
            serve_requests(self.ledger, ["mail"], self.run, "the daemon")

    def run(self, request: Request) -> SweepReport:
        if self.fault is not None:
            raise self.fault
        policy = from_row(StalledPolicy, request.options["policy"])
        assert isinstance(policy, StalledPolicy)
        return sweep(self.server, request.queue, policy, self.ledger, self.fence, trigger="request")

    def __enter__(self) -> Daemon:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()


def test_beside_a_live_daemon_the_daemon_runs_it(server: Server, ledger: Ledger, mail: Queue) -> None:
    stall(mail, 3)
    with Daemon(server, ledger):
        report = once(server, ledger)
    assert (report["recovered"], report["max_stalled"], report["through"]) == (3, 2, "the daemon")
    assert report["token"] == 1  # under its lease


def test_what_fails_in_the_daemon_fails_here(server: Server, ledger: Ledger, mail: Queue) -> None:
    with Daemon(server, ledger) as daemon:
        daemon.fault = EmqError("no such luck")
        with pytest.raises(RequestFailedError, match="no such luck"):
            once(server, ledger)


def test_a_daemon_that_does_not_answer(server: Server, ledger: Ledger, mail: Queue) -> None:
    QueueLease(server, ledger, "mail", role=DAEMON, lease_ms=60_000).acquire()
    with pytest.raises(HeldQueueError, match="daemon"):
        once(server, ledger, answer_seconds=0.05)
    assert requests.waiting(ledger) == []  # it was taken back


def test_a_daemon_that_dies_meanwhile(server: Server, ledger: Ledger, mail: Queue) -> None:
    stall(mail, 2)
    daemon = QueueLease(server, ledger, "mail", role=DAEMON, lease_ms=60_000)
    daemon.acquire()
    reports: list[dict[str, Any]] = []
    asking = threading.Thread(target=lambda: reports.append(once(server, ledger)))
    asking.start()
    until(lambda: requests.waiting(ledger), "the request")
    daemon.release()
    asking.join()
    assert reports[0]["recovered"] == 2
    assert requests.waiting(ledger) == []


def test_a_leader_that_is_stopped_in_a_request_puts_it_back(server: Server, ledger: Ledger, mail: Queue) -> None:
    request = requests.ask(ledger, "sweep", "mail", {}, "cli")

    def stopped(_request: Request) -> SweepReport:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        serve_requests(ledger, ["mail"], stopped, "the daemon")
    assert [waiting.id for waiting in requests.waiting(ledger)] == [request]


def refused(_context: Context) -> int:
    raise FenceError("EMQFENCE the lease is of another life of the server")


def test_a_pass_that_is_fenced_off_begins_again(server: Server, ledger: Ledger, mail: Queue) -> None:
    toy = Order("mail", ToyPolicy(toys=5))
    ACT[:] = [refused, refused]
    report = run_once(Services(server, ledger), TOY, toy)
    assert (report["status"], report["toys"], report["tokens"]) == ("done", 5, [1, 2, 3])
    [run] = runs.latest(ledger)
    assert (run.id, run.status, run.token, run.counts) == (report["run"], "done", 3, {"toys": 5})
    ACT[:] = [refused] * 3
    with pytest.raises(FenceError):
        run_once(Services(server, ledger), TOY, toy)


@pytest.mark.parametrize("policy", [StalledPolicy(limit=7), DeadPolicy(keep=3, archive=True), StreamPolicy(keep=1)])
def test_policies_travel_as_json(policy: Any) -> None:
    assert from_row(type(policy), json.loads(json.dumps(as_row(policy)))) == policy
    with pytest.raises(BadInputError, match="no policy"):
        from_row(type(policy), {"unheard_of": 1})

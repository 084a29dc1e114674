"""The passes on a Cluster, under least rights, and on every kind of state database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from emq_ops.ledger import deaths, interruptions, runs
from emq_ops.ledger.ledger import Ledger, open_ledger
from emq_ops.passes.lease.queue_lease import HeldQueueError, QueueLease
from emq_ops.passes.trim.predict import predict_trim
from emq_ops.policy.models import DeadPolicy
from emq_ops.protocol.ids import mint
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.slots import slot
from tests.support import roles
from tests.support.passing import dead_of, kill_row, leading, stall, swept, trim
from tests.support.valkey import Valkey


@pytest.fixture(params=["sqlite", "postgresql"])
def any_ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/any.db"
    else:
        url = str(request.getfixturevalue("postgres").fresh())
    with open_ledger(url) as opened:
        yield opened


def work_through(server: Server, ledger: Ledger, queue: str) -> None:
    """A queue's life: an outage, a stall, deaths by others, a trim."""
    q = Queue(server, queue)
    assert swept(server, ledger, queue).idle
    [exempt] = stall(q)
    server.write("HSET", q.keys.exempt, mint(), 1)
    interruptions.mark_lost(ledger, [queue])
    assert swept(server, ledger, queue).exempted_jobs == [exempt]
    jobs = stall(q, 1)
    report = swept(server, ledger, queue, limit=1)
    assert report.dead_jobs == [exempt] or report.dead_jobs == jobs
    others = kill_row(q, 5)
    server.write("SET", q.keys.book(others[0], "dependencies"), "0")
    assert swept(server, ledger, queue).found_dead == 5
    assert predict_trim(server, queue, DeadPolicy(keep=2), ledger).report.victims == 4
    with leading(server, ledger, queue) as fence:
        done = trim(server, queue, DeadPolicy(keep=2), ledger, fence)
    assert (done.removed, done.left) == (4, 2)
    assert dead_of(q) == others[3:]
    assert len([d for d in deaths.iterate(ledger, queue=queue) if d.gone_how == "trimmed"]) == 4
    assert {run.status for run in runs.latest(ledger, queue=queue)} == {"done"}


def test_on_every_state_database(server: Server, any_ledger: Ledger) -> None:
    work_through(server, any_ledger, "mail")


def test_two_hosts_with_one_state_in_postgresql(server: Server, postgres: object) -> None:
    url = postgres.fresh()  # type: ignore[attr-defined]  # the fixture's own type is not imported here
    with open_ledger(url) as one, open_ledger(url) as two:
        assert one.state == two.state
        first, second = QueueLease(server, one, "mail"), QueueLease(server, two, "mail")
        assert first.acquire().token == 1
        with pytest.raises(HeldQueueError):
            second.try_acquire()
        first.release()
        assert second.acquire().token == 2


@pytest.mark.parametrize("role", ["daemon", "operator"])
def test_under_least_rights(valkey: Valkey, server: Server, ledger: Ledger, role: str) -> None:
    roles.install(valkey)
    with roles.connect_as(valkey, role) as limited:
        work_through(limited, ledger, "mail")


def test_on_a_cluster_every_queue_by_itself(on_cluster: Server, ledger: Ledger) -> None:
    queues = ["mail", "render", "billing"]
    assert len({slot(Queue(on_cluster, q).keys.base) // 5461 for q in queues}) == 3
    for queue in queues:
        work_through(on_cluster, ledger, queue)

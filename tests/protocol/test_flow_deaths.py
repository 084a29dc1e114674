"""However a flow child ends, its parent hears of it according to its policy, here and in other queues."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from emq_ops.protocol import ids
from emq_ops.protocol.errors import DamagedError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import cancel, claims, control, flows, jobs, reads, recover
from emq_ops.protocol.transitions.flows import FlowJob, ParentPolicy
from emq_ops.protocol.transitions.reads import JobState
from tests.support.keyspace import dump


def _sweep(q: Queue, job: str) -> None:
    assert claims.claim(q, 60_000) is not None
    q.server.write("ZADD", q.keys.active, q.server.now_ms(q.name) - 1, job)
    assert recover.sweep(q, max_stalled=1, limit=10).dead == [job]


def _remove(q: Queue, job: str) -> None:
    assert jobs.remove(q, job)


def _cancel(q: Queue, job: str) -> None:
    assert cancel.request(q, job) is cancel.CancelAnswer.REMOVED


def _drain(q: Queue, job: str) -> None:
    assert control.drain(q) == 1


def _obliterate(q: Queue, job: str) -> None:
    control.pause_queue(q)
    while not control.obliterate(q):
        continue


ENDS: dict[str, Callable[[Queue, str], None]] = {
    "stalled": _sweep,
    "removed": _remove,
    "cancelled": _cancel,
    "drained": _drain,
}


@pytest.mark.parametrize("policy", list(ParentPolicy))
@pytest.mark.parametrize("place", ["orders", "mail"])
@pytest.mark.parametrize("end", list(ENDS))
def test_the_parent_hears_by_its_policy(server: Server, end: str, place: str, policy: ParentPolicy) -> None:
    orders, here = Queue(server, "orders"), Queue(server, place)
    child = FlowJob(ids.mint(), b"c", place, policy)
    root = FlowJob(ids.mint(), b"r", children=(child,))
    flows.add(orders, root)
    ENDS[end](here, child.job)
    assert flows.deliver(here).delivered == (place == "mail")
    fails = policy is ParentPolicy.FAIL
    assert reads.job_state(orders, root.job) is (JobState.DEAD if fails else JobState.PENDING)
    book = orders.keys.book(root.job, "failed" if fails else "unsuccessful")
    assert server.read("HGETALL", book) == [child.job.encode(), end.encode()]


@pytest.mark.parametrize("elsewhere", [True, False])
def test_an_obliterate_tells_parents_elsewhere_and_takes_those_that_wait_along(server: Server, elsewhere: bool) -> None:
    orders, mail = Queue(server, "orders"), Queue(server, "mail")
    leaf = FlowJob(ids.mint(), b"c")
    inner = FlowJob(ids.mint(), b"i", "mail", children=(leaf,))
    root = FlowJob(ids.mint(), b"r", children=(inner,))
    flows.add(orders if elsewhere else mail, root)
    _obliterate(mail, leaf.job)
    assert not [key for key in dump(server) if key.startswith(mail.keys.base) and key != mail.keys.outbox]
    if elsewhere:
        assert flows.deliver(mail).delivered == 1
        assert reads.job_state(orders, root.job) is JobState.DEAD


def test_a_parent_whose_book_is_no_hash_stops_the_end_before_it_begins(server: Server) -> None:
    q = Queue(server, "orders")
    child = FlowJob(ids.mint(), b"c")
    root = FlowJob(ids.mint(), b"r", children=(child,))
    flows.add(q, root)
    server.write("SET", q.keys.book(root.job, "failed"), "x")
    before = dump(server)
    for end in (_remove, _cancel, _drain):
        with pytest.raises(DamagedError, match="failed"):
            end(q, child.job)
    assert dump(server) == before
    assert claims.claim(q, 60_000) is not None
    server.write("ZADD", q.keys.active, server.now_ms(q.name) - 1, child.job)
    assert recover.sweep(q, max_stalled=1, limit=10).dead == []  # set aside
    assert b"failed" in server.read("HGET", q.keys.aside, child.job)

"""Flow parents that wait for ever, as the reference leaves them, are found and mended; others are not."""

from __future__ import annotations

import pytest

from emq_ops.audit.doctor import Finding, examine, mend
from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import claims, flows, reads, settle
from emq_ops.protocol.transitions.flows import FlowJob, ParentPolicy
from emq_ops.protocol.transitions.reads import JobState
from tests.support.keyspace import dump


@pytest.fixture
def orders(server: Server) -> Queue:
    return Queue(server, "orders")


@pytest.fixture
def mail(server: Server) -> Queue:
    return Queue(server, "mail")


def added(q: Queue, *queues: str, policy: ParentPolicy = ParentPolicy.FAIL) -> FlowJob:
    root = FlowJob(ids.mint(), b"r", children=tuple(FlowJob(ids.mint(), b"c", name, policy) for name in queues))
    flows.add(q, root)
    return root


def found(server: Server, *queues: str) -> list[Finding]:
    return examine(server, queues or ("orders", "mail"), settle=0).findings


def mended(server: Server, finding: Finding) -> str:
    [outcome] = mend(server, [finding])
    return outcome.outcome


def forget(q: Queue, job: str) -> None:
    """As the reference completes a child whose lease was reaped: its row goes, and nobody is told."""
    q.server.write("ZREM", q.keys.pending, job)
    q.server.write("UNLINK", q.keys.row(job))


def test_flows_under_way_are_no_findings(server: Server, orders: Queue, mail: Queue) -> None:
    root = added(orders, "orders", "mail", "mail")
    inner = FlowJob(ids.mint(), b"i", "mail", children=(FlowJob(ids.mint(), b"l", "orders"),))
    flows.add(orders, FlowJob(ids.mint(), b"r2", children=(inner,)))
    assert claims.claim(mail, 60_000) is not None
    [claim] = claims.claim_batch(mail, 60_000, 1)
    settle.complete(mail, claim.job, claim.token)  # on its way, by the outbox
    before = dump(server)
    assert found(server) == found(server, "orders") == found(server, "mail") == []
    assert dump(server) == before
    assert reads.job_state(orders, root.job) is JobState.AWAITING_CHILDREN


@pytest.mark.parametrize("queues", [("orders", "mail"), ("orders",)])
def test_children_that_are_gone(server: Server, orders: Queue, mail: Queue, queues: tuple[str, ...]) -> None:
    inner = FlowJob(ids.mint(), b"i", policy=ParentPolicy.IGNORE, children=(FlowJob(ids.mint(), b"l", "mail"),))
    root = FlowJob(ids.mint(), b"r", children=(inner,))
    flows.add(orders, root)
    assert found(server, *queues) == []  # though only one of the two queues is looked at
    forget(mail, inner.children[0].job)
    [one] = found(server, *queues)
    assert (one.kind, one.subject, one.detail) == (
        "lost_children",
        inner.job.encode(),
        "waits for 1 children, of which 0 are there",
    )
    assert mended(server, one) == "mended"
    assert reads.job_state(orders, inner.job) is JobState.DEAD
    assert reads.job_state(orders, root.job) is JobState.PENDING  # which ignores it
    assert (found(server, *queues), mended(server, one)) == ([], "gone")


@pytest.mark.parametrize("home", ["orders", "mail"])
def test_a_death_that_nobody_told(server: Server, orders: Queue, mail: Queue, home: str) -> None:
    parents = Queue(server, home)
    root = added(parents, "mail", policy=ParentPolicy.IGNORE)
    [claim] = claims.claim_batch(mail, 60_000, 1)
    server.write("ZREM", mail.keys.active, claim.job)
    server.write("ZADD", mail.keys.dead, 0, claim.job)
    server.write("HSET", mail.keys.row(claim.job), "state", "dead", "last_error", "stalled")
    [one] = found(server)
    assert (one.kind, one.queue, one.subject) == ("untold_death", "mail", claim.job.encode())
    assert mended(server, one) == "mended"
    assert found(server) == []  # the signal is on its way
    flows.deliver(mail)
    assert reads.job_state(parents, root.job) is JobState.PENDING
    assert flows.ignored_failures(parents, root.job) == {claim.job: b"stalled"}


def test_a_count_that_is_at_its_end(server: Server, orders: Queue) -> None:
    root = added(orders, "orders")
    server.write("SET", orders.keys.book(root.job, "dependencies"), "0")
    [one] = found(server)
    assert one.kind == "unreleased_parent"
    assert mended(server, one) == "mended"
    assert reads.job_state(orders, root.job) is JobState.PENDING


def test_a_flow_that_was_not_added_whole_is_told_and_left(server: Server, orders: Queue, mail: Queue) -> None:
    root = added(orders, "mail")
    server.write("HSET", orders.keys.adding, root.job, "1")
    forget(mail, root.children[0].job)
    diagnosis = examine(server, ["orders", "mail"], settle=0)
    assert diagnosis.findings == []
    assert any("was not added whole" in note for note in diagnosis.notes)

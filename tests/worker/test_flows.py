"""Workers take flow children and parents like any job: a child settles with its parent, whatever becomes of it."""

from __future__ import annotations

import pytest

from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.transitions import claims, flows, reads, recover
from emq_ops.protocol.transitions.flows import FlowJob, ParentPolicy
from emq_ops.protocol.transitions.reads import JobState
from emq_ops.worker import Consumer, ConsumerSettings, Job
from emq_ops.worker.backoff import Backoff
from tests.support.keyspace import dump

FAST = {"cancel": False, "beat": 20, "backoff": Backoff(base=1, longest=1, jitter=0)}


def settings(**more: object) -> ConsumerSettings:
    return ConsumerSettings(**{**FAST, **more})  # type: ignore[arg-type]


def flow(policy: ParentPolicy = ParentPolicy.FAIL, queue: str | None = None) -> FlowJob:
    children = (FlowJob(ids.mint(), b"good"), FlowJob(ids.mint(), b"bad", queue, policy))
    return FlowJob(ids.mint(), b"parent", children=children)


@pytest.mark.parametrize("record", [True, False])
def test_a_parent_runs_after_its_children_and_gets_what_they_returned(q: Queue, record: bool) -> None:
    leaves = [FlowJob(ids.mint(), b"%d" % n) for n in range(3)]
    inner = FlowJob(ids.mint(), b"inner", children=leaves)
    flows.add(q, FlowJob(ids.mint(), b"root", children=(inner,)))
    order: list[bytes] = []
    values: dict[bytes, dict[str, bytes]] = {}

    def handle(job: Job) -> bytes:
        order.append(job.payload)
        values[job.payload] = job.children_values()
        return b"did " + job.payload

    report = Consumer(q, handle, settings(record=record)).run(until_idle=True)
    assert report.completed == 5
    assert order[3:] == [b"inner", b"root"]
    assert values[b"inner"] == {leaf.job: b"did " + bytes(leaf.payload) for leaf in leaves}  # type: ignore[arg-type]
    assert values[b"root"] == {inner.job: b"did inner"}
    left = {key for key in dump(q.server) if "metrics:" not in key and "stream:" not in key}
    assert left == set()  # books go with the row


@pytest.mark.parametrize("policy", list(ParentPolicy))
def test_a_child_that_dies_is_told_by_its_policy(q: Queue, policy: ParentPolicy) -> None:
    root = flow(policy)
    flows.add(q, root)
    seen: dict[str, bytes] = {}

    def handle(job: Job) -> None:
        if job.payload == b"bad":
            raise ValueError("boom")
        if job.payload == b"parent":
            seen.update(job.ignored_failures())

    Consumer(q, handle, settings(max_attempts=2)).run(until_idle=True)
    while q.server.read("ZCARD", q.keys.schedule):
        recover.promote(q)
        Consumer(q, handle, settings(max_attempts=2)).run(until_idle=True)
    if policy is ParentPolicy.FAIL:
        assert reads.job_state(q, root.job) is JobState.DEAD
    else:
        assert reads.job_state(q, root.job) is JobState.ABSENT
        assert list(seen) == [root.children[1].job]
        assert b"boom" in seen[root.children[1].job]


def test_a_child_whose_lease_was_reaped_under_its_worker_tells_its_parent(q: Queue) -> None:
    root = FlowJob(ids.mint(), b"r", children=(FlowJob(ids.mint(), b"c"),))
    flows.add(q, root)
    values: list[dict[str, bytes]] = []

    def handle(job: Job) -> bytes:
        if job.id == root.job:
            values.append(job.children_values())
            return b"done"
        q.server.write("ZADD", q.keys.active, q.server.now_ms(q.name) - 1, job.id)
        assert recover.reap(q) == 1
        return b"late"

    Consumer(q, handle, settings(concurrency=1, keep=False)).run(until_idle=True)
    assert values == [{root.children[0].job: b"late"}]


def test_a_child_elsewhere_tells_by_the_outbox(q: Queue) -> None:
    root, mail = flow(queue="mail"), Queue(q.server, "mail")
    flows.add(q, root)
    for one in (q, mail):
        Consumer(one, lambda job: job.payload, settings()).run(until_idle=True)
    assert reads.job_state(q, root.job) is JobState.AWAITING_CHILDREN
    assert flows.deliver(mail).delivered == 1
    assert claims.claim(q, 1000) is not None
    assert flows.children_values(q, root.job) == {child.job: bytes(child.payload) for child in root.children}  # type: ignore[arg-type]

"""Flows: added whole or finished by adding again, each child heard of once, nothing lost by pumps that meet."""

from __future__ import annotations

import threading
from unittest.mock import patch

import pytest

from emq_ops.protocol import ids
from emq_ops.protocol.errors import BadInputError, KindError, OutcomeUnknownError, StateError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server, connect
from emq_ops.protocol.transitions import claims, enqueue, flows, jobs, reads, recover, settle
from emq_ops.protocol.transitions.flows import FlowJob, ParentPolicy
from emq_ops.protocol.transitions.reads import JobState
from tests.support.keyspace import dump
from tests.support.valkey import Valkey


def _leaf(queue: str | None = None, policy: ParentPolicy = ParentPolicy.FAIL) -> FlowJob:
    return FlowJob(ids.mint(), b"c", queue, policy)


def _work(q: Queue, result: bytes) -> str:
    [claim] = claims.claim_batch(q, 60_000, 1)
    assert settle.complete(q, claim.job, claim.token, result=result)
    return claim.job


@pytest.mark.parametrize("cut_after", range(4))
def test_a_flow_that_was_cut_off_is_finished_by_adding_it_again(server: Server, cut_after: int) -> None:
    """The reply is lost after the n-th step; a child that ran meanwhile is not added twice."""
    orders, mail, web = (Queue(server, name) for name in ("orders", "mail", "web"))
    inner = FlowJob(ids.mint(), b"i", "mail", children=(_leaf("web"),))
    root = FlowJob(ids.mint(), b"r", children=(_leaf("mail"), inner, _leaf("web")))
    run, steps = Queue.run, 0

    def cut(self: Queue, script: str, *args: object, **more: object) -> object:
        nonlocal steps
        reply = run(self, script, *args, **more)  # type: ignore[arg-type]
        if script == "flow_add":
            steps += 1
            if steps == cut_after + 1:
                raise OutcomeUnknownError("the reply was lost")
        return reply

    with patch.object(Queue, "run", cut), pytest.raises(OutcomeUnknownError):
        flows.add(orders, root)
    done = [_work(q, b"early") for q in (mail, web) if reads.counts(q).pending]
    assert flows.add(orders, root)
    for q in (mail, web):
        while reads.counts(q).pending:
            done.append(_work(q, b"late"))
    assert sorted(done) == sorted(child.job for child in (root.children[0], root.children[2], *inner.children))
    for q in (web, mail):
        flows.deliver(q)
    assert reads.job_state(mail, inner.job) is JobState.PENDING
    _work(mail, b"inner")
    flows.deliver(mail)
    assert reads.job_state(orders, root.job) is JobState.PENDING
    assert set(flows.children_values(orders, root.job)) == {child.job for child in root.children}
    _work(orders, b"root")
    left = {key: value for key, value in dump(server).items() if "metrics:" not in key}
    assert left == {}


def test_adding_it_again_changes_nothing(server: Server) -> None:
    q = Queue(server, "orders")
    root = FlowJob(ids.mint(), b"r", children=(_leaf(), _leaf()))
    assert flows.add(q, root)
    _work(q, b"one")
    before = dump(server)
    assert flows.add(q, root) is False
    assert dump(server) == before


@pytest.mark.parametrize(
    ("root", "why"),
    [
        (lambda: FlowJob(ids.mint(), b"r"), BadInputError),
        (lambda: FlowJob(ids.mint(), b"r", children=(FlowJob("JOBshort", b"c"),)), BadInputError),
        (lambda: FlowJob(ids.mint("EVT"), b"r", children=(_leaf("mail"),)), KindError),
        (lambda: FlowJob(ids.mint(), b"r", children=(_leaf(), FlowJob(ids.mint("EVT"), b"c"))), KindError),
        (lambda: FlowJob(ids.mint(), b"r", children=(_leaf("a{b"),)), BadInputError),
    ],
)
def test_what_is_no_flow_is_refused_before_anything_is_written(
    server: Server, root: object, why: type[Exception]
) -> None:
    with pytest.raises(why):
        flows.add(Queue(server, "orders"), root())  # type: ignore[operator]
    assert dump(server) == {}


def _deep(levels: int, queues: tuple[str, ...]) -> FlowJob:
    """A chain of so many levels, its queues in turn."""
    below: tuple[FlowJob, ...] = ()
    for level in range(levels - 1, -1, -1):
        below = (FlowJob(ids.mint(), b"%d" % level, queues[level % len(queues)], children=below),)
    return below[0]


@pytest.mark.parametrize("queues", [("orders",), ("orders", "mail", "web")])
def test_eight_levels_and_no_more(server: Server, queues: tuple[str, ...]) -> None:
    orders = Queue(server, "orders")
    with pytest.raises(BadInputError, match="8 levels"):
        flows.add(orders, _deep(9, queues))
    assert dump(server) == {}
    assert flows.add(orders, _deep(8, queues))
    every = [Queue(server, name) for name in queues]
    for level in range(7, -1, -1):
        home = every[level % len(queues)]
        [claim] = claims.claim_batch(home, 60_000, 1)
        assert claim.payload == b"%d" % level
        settle.complete(home, claim.job, claim.token)
        for q in every:
            flows.deliver(q)
    assert {key for key in dump(server) if "metrics:" not in key} == set()


def test_many_at_once_each_stands_alone(server: Server) -> None:
    q, taken = Queue(server, "orders"), ids.mint()
    enqueue.enqueue(q, taken, b"mine")
    good = [FlowJob(ids.mint(), b"r", children=(_leaf(), _leaf())) for _ in range(300)]
    mixed = FlowJob(ids.mint(), b"r", children=(_leaf("mail"),))
    bad = [FlowJob(ids.mint(), b"r"), FlowJob(taken, b"r", children=(_leaf(),))]
    clash = FlowJob(ids.mint(), b"r", children=(FlowJob(taken, b"c"),))
    told = flows.add_many(q, [*good[:150], bad[0], mixed, clash, *good[150:], bad[1]])
    refused = [type(one) for one in told if one is not True]
    assert (told.count(True), refused) == (301, [BadInputError, StateError, bool])
    assert reads.counts(q).pending == 601
    before = dump(server)
    assert flows.add_many(q, [*good, mixed]) == [False] * 301
    with pytest.raises(BadInputError):
        flows.add_many(q, [FlowJob(ids.mint(), b"r", children=(_leaf(),)), FlowJob("JOBx", b"r")])
    assert dump(server) == before


def test_an_id_that_is_taken_is_refused_whole(server: Server) -> None:
    q, taken = Queue(server, "orders"), ids.mint()
    enqueue.enqueue(q, taken, b"mine")
    before = dump(server)
    with pytest.raises(StateError, match=taken):
        flows.add(q, FlowJob(ids.mint(), b"r", children=(_leaf(), FlowJob(taken, b"c"))))
    assert dump(server) == before


def test_a_child_whose_lease_was_reaped_tells_its_parent(server: Server) -> None:
    q = Queue(server, "orders")
    root = FlowJob(ids.mint(), b"r", children=(_leaf(),))
    flows.add(q, root)
    [claim] = claims.claim_batch(q, 1, 1)
    while recover.reap(q) == 0:
        continue
    assert settle.complete(q, claim.job, claim.token, result=b"late")
    assert reads.job_state(q, root.job) is JobState.PENDING
    assert flows.children_values(q, root.job) == {claim.job: b"late"}


def test_a_death_reaches_the_grandparent_and_is_counted_once(server: Server) -> None:
    orders, mail = Queue(server, "orders"), Queue(server, "mail")
    leaf = _leaf()
    inner = FlowJob(ids.mint(), b"i", "mail", ParentPolicy.IGNORE, (leaf,))
    root = FlowJob(ids.mint(), b"r", children=(inner, _leaf("orders")))
    flows.add(orders, root)
    for _ in range(2):  # it is brought back, and dies again
        [claim] = claims.claim_batch(mail, 60_000, 1)
        settle.retry(mail, claim.job, claim.token, settle.Failure(b"boom", 0, 1))
        jobs.requeue(mail, leaf.job)
    assert reads.job_state(mail, inner.job) is JobState.DEAD
    assert flows.deliver(mail).delivered == 2
    assert flows.ignored_failures(orders, root.job) == {inner.job: b"boom"}
    assert flows.dependencies(orders, root.job) == 1


def test_pumps_that_meet_lose_no_signal_and_set_aside_what_they_cannot_read(server: Server, valkey: Valkey) -> None:
    orders, mail = Queue(server, "orders"), Queue(server, "mail")
    root = FlowJob(ids.mint(), b"r", children=tuple(_leaf("mail") for _ in range(200)))
    flows.add(orders, root)
    server.write("RPUSH", mail.keys.outbox, b"a\0b\0c")
    for claim in claims.claim_batch(mail, 60_000, 200):
        settle.complete(mail, claim.job, claim.token, result=b"r\0with\0NULs")

    def pump() -> None:
        with connect(valkey.url) as ours:
            while server.read("LLEN", mail.keys.outbox):
                flows.deliver(Queue(ours, "mail"), 7)

    pumps = [threading.Thread(target=pump) for _ in range(3)]
    for one in pumps:
        one.start()
    for one in pumps:
        one.join(60)
    assert reads.job_state(orders, root.job) is JobState.PENDING
    assert set(flows.children_values(orders, root.job).values()) == {b"r\0with\0NULs"}
    [aside] = server.read("LRANGE", mail.keys.outbox_aside, 0, -1)
    assert aside.endswith(b"\0a\0b\0c")
    assert b"no entry" in aside

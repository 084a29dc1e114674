"""Deduplication keys: one holder at a time, and given back at exactly what the caller said."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from emq_ops.protocol import ids
from emq_ops.protocol.errors import BadInputError, DamagedError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import claims, control, jobs, reads, recover, settle
from emq_ops.protocol.transitions.enqueue import MOMENTS, Dedup, Enqueued, NewJob, put, put_many
from tests.support.invariants import violations
from tests.support.keyspace import dump

LEASE = 60_000


@pytest.fixture
def q(server: Server) -> Queue:
    return Queue(server, "orders")


LAST = settle.Failure("boom", delay_ms=0, max_attempts=1)


def _completed(q: Queue, job: str) -> None:
    [claim] = claims.claim_batch(q, LEASE, 1)
    settle.complete(q, job, claim.token)


def _died(q: Queue, job: str) -> None:
    [claim] = claims.claim_batch(q, LEASE, 1)
    settle.retry(q, job, claim.token, LAST)


def _swept(q: Queue, job: str) -> None:
    claims.claim_batch(q, 1, 1)
    then = q.server.now_ms(q.name) + 1
    while q.server.now_ms(q.name) <= then:
        pass
    assert recover.sweep(q).dead == [job]


def _obliterated(q: Queue, _: str) -> None:
    control.pause_queue(q)
    assert control.obliterate(q)


ENDS: list[tuple[str, Callable[[Queue, str], object]]] = [
    ("completed", _completed),
    ("dead", _died),
    ("dead", _swept),
    ("removed", jobs.remove),
    ("removed", lambda q, _: control.drain(q)),
    ("removed", _obliterated),
]


@pytest.mark.parametrize(("moment", "end"), ENDS)
def test_a_key_goes_at_what_the_caller_said_and_at_nothing_else(
    q: Queue, moment: str, end: Callable[[Queue, str], object]
) -> None:
    for some in itertools.chain.from_iterable(itertools.combinations(MOMENTS, size) for size in range(4)):
        q.server.write("FLUSHALL")
        job = ids.mint()
        put(q, NewJob(job, b"x", dedup=Dedup("k", 60_000, some)))
        end(q, job)
        assert reads.dedup_owner(q, "k") == (None if moment in some else job)


def test_one_that_another_holds_meanwhile_is_not_given_back(q: Queue) -> None:
    first, second = ids.mint(), ids.mint()
    put(q, NewJob(first, b"", dedup=Dedup("k")))
    q.server.write("DEL", q.keys.dedup("k"))
    assert put(q, NewJob(second, b"", dedup=Dedup("k"))).added
    jobs.remove(q, first)
    assert reads.dedup_owner(q, "k") == second


def test_the_holder_is_told_and_nothing_changes(q: Queue) -> None:
    lane, first, second = ids.mint("GRP"), ids.mint(), ids.mint()
    assert put(q, NewJob(first, b"", lane, dedup=Dedup("k", 60_000))) == Enqueued(first, True)
    assert claims.claim_lane(q, LEASE) is not None
    before = dump(q.server)
    assert put(q, NewJob(second, b"", dedup=Dedup("k"))) == Enqueued(first, False)
    # Sent again after a lost reply: it is there, by its key or, where that is gone, by its row.
    assert put(q, NewJob(first, b"", lane, dedup=Dedup("k", 60_000))) == Enqueued(first, False)
    assert put(q, NewJob(first, b"", lane, dedup=Dedup("other"))) == Enqueued(first, False)
    assert {key: value for key, value in dump(q.server).items() if ":de:" not in key} == {
        key: value for key, value in before.items() if ":de:" not in key
    }
    assert reads.dedup_owner(q, "other") is None
    later = put_many(q, [NewJob(ids.mint(), b"", lane, delay_ms=LEASE, dedup=Dedup("late")) for _ in range(3)])
    assert [isinstance(one, Enqueued) and one.added for one in later] == [True, False, False]
    assert violations(q.server, q.name) == []


def test_what_cant_be_is_refused_before_anything_is_written(q: Queue, server: Server) -> None:
    for bad in (
        {"key": ""},
        {"key": "a\n"},
        {"key": "é" * 101},
        {"key": "k", "ttl_ms": 0},
        {"key": "k", "release": ()},
    ):
        with pytest.raises(BadInputError):
            Dedup(**bad)  # type: ignore[arg-type]
    server.write("RPUSH", q.keys.dedup("k"), "x")
    with pytest.raises(DamagedError, match=r"emq:\{orders\}:de:k is a list, not a string"):
        put(q, NewJob(ids.mint(), b"", dedup=Dedup("k")))
    assert list(dump(server)) == [q.keys.dedup("k")]


def test_many_are_admitted_as_one_by_one_would_be(q: Queue, server: Server) -> None:
    lanes = [None, ids.mint("GRP"), ids.mint("GRP")]
    news = [NewJob(ids.mint(), b"%d" % n, lanes[n % 3]) for n in range(1_203)]
    control.pause_lane(q, lanes[1] or "")
    control.limit_lane(q, lanes[2] or "", 1)
    assert all(put(q, new).added for new in news)
    singly = dump(server)
    for key in singly:
        if ":job:" in key or key.endswith(("pending", "ring", "wake")):
            server.write("DEL", key)
    told = put_many(q, [*news, news[0]])
    assert [isinstance(one, Enqueued) and one.added for one in told] == [True] * len(news) + [False]
    assert dump(server) == singly


def test_one_bad_lane_refuses_its_own_jobs_alone(q: Queue, server: Server) -> None:
    bad, good = ids.mint("GRP"), ids.mint("GRP")
    server.write("SET", q.keys.lane(bad), "x")
    told = put_many(q, [NewJob(ids.mint(), b"", lane) for lane in (None, bad, good)])
    assert [type(one) for one in told] == [Enqueued, DamagedError, Enqueued]

"""A worker's lock, key or field of the row: freshened by a keeper, looked at wherever a job is removed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from emq_ops.protocol import ids
from emq_ops.protocol.errors import BadInputError, DamagedError, HeldError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import claims, control, enqueue, jobs, recover, settle
from emq_ops.protocol.transitions.locks import Locks
from tests.support.keyspace import dump

MARKS: dict[str, Callable[[Queue, str], object]] = {
    "key": lambda q, job: q.server.write("SET", q.keys.book(job, "lock"), "1"),
    "field": lambda q, job: q.server.write("HSET", q.keys.row(job), "lock", "1"),
}


@pytest.fixture(params=MARKS)
def held(request: pytest.FixtureRequest, server: Server) -> tuple[Queue, str]:
    """A queue with three waiting jobs, and the first of them, which somebody holds."""
    q = Queue(server, "orders")
    waiting = [ids.mint() for _ in range(3)]
    for job in waiting:
        enqueue.enqueue(q, job, b"x")
    MARKS[request.param](q, waiting[0])
    return q, waiting[0]


def test_a_drain_leaves_held_jobs_and_goes_past_them(held: tuple[Queue, str], monkeypatch: pytest.MonkeyPatch) -> None:
    q, job = held
    monkeypatch.setattr(control, "DRAIN_SLICE", 1)
    assert control.drain(q) == 2
    assert q.server.read("ZRANGE", q.keys.pending, 0, -1) == [job.encode()]
    assert jobs.read_row(q, job) is not None


def test_neither_remove_nor_obliterate_without_force_takes_a_held_job(held: tuple[Queue, str]) -> None:
    q, job = held
    control.pause_queue(q)
    before = dump(q.server)
    for take in (lambda: jobs.remove(q, job), lambda: control.obliterate(q, budget=2)):
        with pytest.raises(HeldError):
            take()
        assert dump(q.server) == before
    assert control.obliterate(q, force=True)
    assert dump(q.server) == {}


def test_tracked_until_it_is_not(server: Server) -> None:
    q = Queue(server, "orders")
    job, gone = ids.mint(), ids.mint()
    enqueue.enqueue(q, job, b"x")
    assert claims.claim(q, 1000)
    unmarked = dump(server)
    locks = Locks(q, 60_000)
    assert [locks.track(job, 1), locks.track(gone, 1), len(locks)] == [True, False, 1]
    assert {server.read("GET", q.keys.book(job, "lock")), server.read("HGET", q.keys.row(job), "lock")} == {b"1"}
    assert locks.beat() == []
    # Another worker took the job over: its marks are not ours to take off.
    server.write("SET", q.keys.book(job, "lock"), "2")
    server.write("HSET", q.keys.row(job), "lock", "2")
    assert locks.untrack(job)
    assert not locks.untrack(job)
    assert server.read("HGET", q.keys.row(job), "lock") == b"2"
    server.write("DEL", q.keys.book(job, "lock"))
    server.write("HDEL", q.keys.row(job), "lock")
    assert locks.track(job, 1)
    assert locks.untrack(job)
    assert dump(server).keys() == unmarked.keys()
    assert server.read("HEXISTS", q.keys.row(job), "lock") == 0


def test_a_beat_puts_no_swept_job_back_and_marks_none(server: Server) -> None:
    q = Queue(server, "orders")
    job = ids.mint()
    enqueue.enqueue(q, job, b"x")
    claims.claim(q, 1)
    locks = Locks(q, 60_000)
    locks.track(job, 1)
    while not recover.reap(q):
        pass
    server.write("DEL", q.keys.book(job, "lock"))
    assert locks.beat() == [job]
    assert server.read("EXISTS", q.keys.active, q.keys.book(job, "lock")) == 0


def test_a_settlement_of_the_holder_takes_its_marks_along(server: Server) -> None:
    q = Queue(server, "orders")
    job = ids.mint()
    enqueue.enqueue(q, job, b"x")
    locks = Locks(q, 60_000)
    settles: list[Callable[[int], object]] = [
        lambda token: settle.retry(q, job, token, settle.Failure(b"e", 1, 9), release=True),
        lambda token: settle.delay_in(q, job, token, 1, release=True),
    ]
    for one in settles:
        claim = claims.claim(q, 60_000)
        assert claim is not None
        locks.track(job, claim.token)
        one(claim.token)
        assert server.read("HEXISTS", q.keys.row(job), "lock") == 0
        assert server.read("EXISTS", q.keys.book(job, "lock")) == 0
        while not recover.promote(q):
            pass


def test_bad_ids_and_keys_of_another_type(server: Server) -> None:
    q, job = Queue(server, "orders"), ids.mint()
    locks = Locks(q, 1000)
    server.write("HSET", q.keys.row(job), "attempts", "1")
    server.write("RPUSH", q.keys.book(job, "lock"), "x")
    before = dump(server)
    for bad in ("JOB", "job0STBBIRAKHo", ""):
        with pytest.raises(BadInputError):
            locks.track(bad, 1)
    with pytest.raises(DamagedError, match=":lock is a list"):
        locks.track(job, 1)
    assert dump(server) == before

"""Bad input of every kind: one clear error, nothing changed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from emq_ops.protocol import ids
from emq_ops.protocol.errors import BadInputError, EmqError, KindError
from emq_ops.protocol.key_names import queue_of_key
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import claims, control, enqueue, jobs, leases, reads, recover, repeat, settle
from tests.protocol.refusing import GROUP, JOB, OTHER, Call, refused, seed


@pytest.mark.parametrize("name", ["", "a{b", "a}b", "{q}", "a\0b", "x" * 201, "é" * 101, b"\xff"])
def test_queue_names_that_are_none(name: str, server: Server) -> None:
    with pytest.raises(BadInputError):
        Queue(server, name)


@pytest.mark.parametrize("name", ["a b", "mail[1]", "*", "?", "x" * 200, "é" * 100, "a:b", "emq"])
def test_queue_names_that_are_legal(name: str, server: Server) -> None:
    q = Queue(server, name)
    assert enqueue.enqueue(q, JOB, b"x")
    assert reads.counts(q).pending == 1
    assert server.queues() == [name]
    assert queue_of_key(q.keys.pending.encode()) == name


@pytest.mark.parametrize("bad", ["", "JOB", "job0STBBIRAKHo", "JOBzzzzzzzzzzz", "JOB0STBBIRAK-o", "JOB0STBBIRAKHo\n"])
@pytest.mark.parametrize(
    "call",
    [
        lambda q, i: enqueue.enqueue(q, i, b"x"),
        lambda q, i: enqueue.enqueue_many(q, [enqueue.NewJob(OTHER, b"x"), enqueue.NewJob(i, b"x")]),
        lambda q, i: enqueue.schedule_in(q, i, b"x", 1),
        lambda q, i: settle.complete(q, i, 1),
        lambda q, i: settle.retry(q, i, 1, settle.Failure(b"", delay_ms=1, max_attempts=1)),
        lambda q, i: leases.extend(q, i, 1, 1),
        lambda q, i: leases.keep(q, [(i, 1)], 1),
        lambda q, i: jobs.remove(q, i),
        lambda q, i: jobs.requeue(q, i),
        lambda q, i: jobs.update_progress(q, i, b"x"),
        lambda q, i: reads.job_state(q, i),
        lambda q, i: repeat.advance(q, "r", i),
        lambda q, i: recover.reap_lane(q, i.replace("JOB", "GRP")),
    ],
)
def test_malformed_ids_never_reach_the_server(call: Callable[[Queue, str], object], bad: str, server: Server) -> None:
    refused(Queue(server, "q"), lambda q: call(q, bad), BadInputError)


def test_an_id_of_another_kind(server: Server) -> None:
    text = refused(Queue(server, "q"), lambda q: enqueue.enqueue(q, "EVT0STBBIRAKHo", b"x"), KindError)
    assert "EMQKIND" in text


@pytest.mark.parametrize(
    "call",
    [
        lambda q: claims.claim(q, 0),
        lambda q: claims.claim(q, -5),
        lambda q: claims.claim_lane(q, 0),
        lambda q: claims.claim_batch(q, 1000, 0),
        lambda q: leases.extend(q, JOB, 1, 0),
        lambda q: leases.extend(q, JOB, 1, -1),
        lambda q: leases.extend_many(q, [], 0),
        lambda q: leases.keep(q, [(JOB, 0)], 5),
        lambda q: recover.sweep(q, 0),
        lambda q: recover.sweep(q, 1, 0),
        lambda q: recover.promote(q, 0),
        lambda q: recover.reap(q, -1),
        lambda q: control.limit_lane(q, GROUP, 0),
        lambda q: control.obliterate(q, budget=0),
        lambda q: jobs.add_log(q, JOB, b"x", keep=-1),
        lambda q: enqueue.schedule_in(q, OTHER, b"x", -1),
        lambda q: enqueue.schedule_at(q, OTHER, b"x", 1_796_000_000),
        lambda q: enqueue.schedule_at(q, OTHER, b"x", 1_796_000_000_000_000),
        lambda q: settle.retry(q, JOB, 1, settle.Failure(b"", delay_ms=-1, max_attempts=1)),
        lambda q: settle.retry(q, JOB, 1, settle.Failure(b"", delay_ms=1, max_attempts=0)),
        lambda q: repeat.register(q, "r", 0, b""),
        lambda q: repeat.register(q, "", 5, b""),
        lambda q: reads.browse(q, "pending", limit=0),
        lambda q: reads.browse(q, "active"),
        lambda q: enqueue.enqueue(q, OTHER, 5),
    ],
)
def test_numbers_that_can_not_be(call: Call, server: Server) -> None:
    q = Queue(server, "q")
    seed(q)
    refused(q, call, BadInputError)


@pytest.mark.parametrize("payload", [b"", b"\x00\xff\xfe\r\n", b"x" * (8 << 20)], ids=["empty", "binary", "8MiB"])
def test_payloads_of_any_size_and_bytes(payload: bytes, server: Server) -> None:
    q = Queue(server, "q")
    assert enqueue.enqueue(q, JOB, payload)
    claim = claims.claim(q, 1000)
    assert claim is not None
    assert claim.payload == payload
    assert jobs.update_payload(q, JOB, payload[::-1])
    assert settle.retry(q, JOB, 1, settle.Failure(payload, delay_ms=0, max_attempts=1)) is settle.Retried.DEAD
    row = jobs.read_row(q, JOB)
    assert row is not None
    assert (row[b"payload"], row[b"last_error"]) == (payload[::-1], payload)


KEYS = ["pending", "active", "schedule", "dead", "ring", "paused", "glimit", "gactive", "wake", "meta"]


def test_keys_refuse_what_would_be_another_key() -> None:
    k = keys_of("q")
    for build in (lambda: k.row("x"), lambda: k.lane(JOB), lambda: k.book(JOB, "x"), lambda: k.stream("a:archived")):
        with pytest.raises(EmqError):
            build()
    assert ids.is_valid(JOB)

"""Settlements in one step of the server: each is what it is alone, and one that is refused changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from emq_ops.protocol import ids
from emq_ops.protocol.conformance.replay import CALLS, Args, Vector, read_vectors, replay
from emq_ops.protocol.conformance.values import raw
from emq_ops.protocol.errors import DamagedError, EmqError, StaleTokenError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import claims, enqueue, settle, streams
from emq_ops.protocol.transitions.settle import CompletionRecord
from tests.support.keyspace import recorded

VECTORS = [
    vector
    for name in ("transitions.json", "operations.json")
    for vector in read_vectors(
        recorded(name), {**CALLS, "batch_consume": CALLS["claim"], "stream_consume": CALLS["claim"]}
    )
    if vector.op in ("complete", "complete_flow")
]


def _complete(q: Queue, args: Args) -> int:
    result = raw(args["result"]) if args.get("result") is not None else None
    [told] = settle.settle_many(q, [settle.to_complete(q, args["id"], args["token"], result=result)])
    if isinstance(told, EmqError):
        raise told
    return int(told)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.name)
def test_each_recorded_completion_is_the_same(vector: Vector, server: Server) -> None:
    alone = replay(server, vector)
    for key in set(server.scan()):
        server.write("UNLINK", key)
    together = replay(server, vector, calls={**CALLS, "complete": _complete, "complete_flow": _complete})
    assert (together.lines, together.got) == (alone.lines, alone.got)


@pytest.mark.parametrize("size", [2, 100])
def test_one_that_is_refused_is_refused_alone(server: Server, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(settle, "TOGETHER", size)
    q, lane = Queue(server, "orders"), ids.mint("GRP")
    for n in range(6):
        enqueue.enqueue(q, ids.mint(), b"x", group=lane if n > 3 else None)
    held = [*claims.claim_batch(q, 60_000, 9), *claims.claim_lane_batch(q, 60_000, 9)]
    stale, damaged, gone, *fine = held
    server.write("HSET", q.keys.row(stale.job), "attempts", "9")
    server.write("HSET", q.keys.row(damaged.job), "attempts", "many")
    server.write("UNLINK", q.keys.row(gone.job))
    record = CompletionRecord("completed", 1, 5, result=b"r")
    calls = [settle.to_complete(q, one.job, one.token, release=True, record=record) for one in held]
    failure = settle.Failure(b"e", 1, 1)
    calls.insert(1, settle.to_retry(q, stale.job, 9, failure))
    told: list[Any] = settle.settle_many(q, calls)
    assert isinstance(told[0], StaleTokenError)
    assert told[1] is settle.Retried.DEAD
    assert isinstance(told[2], DamagedError)
    assert told[3:] == [False, *[True] * len(fine)]
    assert [dict(one.fields)[b"job"].decode() for one in streams.read(q, "completions")] == [one.job for one in fine]
    assert server.read("HGET", q.keys.completed, "count") == str(len(fine)).encode()
    assert server.read("ZRANGE", q.keys.active, 0, -1) == sorted([damaged.job.encode(), gone.job.encode()])
    assert server.read("EXISTS", q.keys.gactive) == 0


def test_one_that_is_named_twice_is_completed_once(server: Server) -> None:
    q, lane = Queue(server, "orders"), ids.mint("GRP")
    for _ in range(2):
        enqueue.enqueue(q, ids.mint(), b"x", group=lane)
    one, other = claims.claim_lane_batch(q, 60_000, 2)
    call = settle.to_complete(q, one.job, one.token, record=CompletionRecord("completed", 1, 5))
    assert settle.settle_many(q, [call, call]) == [True, False]
    assert server.read("HGET", q.keys.gactive, lane) == b"1"  # the other's
    assert server.read("HGET", q.keys.completed, "count") == b"1"
    assert server.read("ZRANGE", q.keys.active, 0, -1) == [other.job.encode()]
    assert len(list(streams.read(q, "completions"))) == 1


def test_ids_of_records_go_on_over_every_digit(server: Server) -> None:
    """What is counted up digit by digit is what is divided anew."""
    q = Queue(server, "orders")
    told = streams.append_many(q, "s", [[("n", "x")]] * 5_000)
    assert [ids.parse(event).stream_id for event in told] == [one.stream_id for one in streams.read(q, "s")]
    assert len(set(told)) == 5_000

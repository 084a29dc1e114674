"""A producer: each call, on threads and awaited, puts exactly what was said where it was said."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from emq_ops.producer import (
    BYTES,
    JSON,
    MSGPACK,
    AsyncProducer,
    Codec,
    Dedup,
    Enqueued,
    FlowSpec,
    JobSpec,
    Limits,
    ParentPolicy,
    Producer,
    lane_of,
)
from emq_ops.protocol import ids
from emq_ops.protocol.errors import BadInputError, DamagedError, UnreachableError
from emq_ops.protocol.ids import Minter
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import claims, control, jobs
from tests.support.invariants import violations
from tests.support.keyspace import dump
from tests.support.valkey import Valkey

PAGE = Path(__file__).parents[2] / "docs" / "producer.md"
NOON = datetime(2090, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def q(server: Server) -> Queue:
    return Queue(server, "orders")


def row(q: Queue, told: Enqueued) -> dict[bytes, bytes]:
    found = jobs.read_row(q, told.job)
    assert found is not None
    return found


@pytest.mark.parametrize("block", re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL))
def test_every_example_of_the_page_runs(valkey: Valkey, server: Server, block: str) -> None:
    exec(compile(block.replace("redis://localhost:6379", valkey.url), str(PAGE), "exec"), {"__name__": "example"})


def test_a_job_is_put_as_it_was_said(q: Queue) -> None:
    producer, lane = Producer(q.server), lane_of("tenant 42")
    assert lane == lane_of("tenant 42") != lane_of("tenant 43")
    grouped = producer.enqueue("orders", {"n": "ü"}, lane=lane, delay=timedelta(seconds=90))
    assert row(q, grouped)[b"payload"] == '{"n":"ü"}'.encode()
    assert row(q, grouped)[b"group"] == lane.encode()
    due = int(q.server.read("ZSCORE", q.keys.schedule, grouped.job))
    assert 80_000 < due - q.server.now_ms("orders") <= 90_000
    dated = producer.enqueue("orders", b"\x00raw", at=NOON.astimezone(timezone(timedelta(hours=-7))))
    assert (row(q, dated)[b"payload"], q.server.read("ZSCORE", q.keys.schedule, dated.job)) == (
        b"\x00raw",
        str(int(NOON.timestamp() * 1000)).encode(),
    )
    assert violations(q.server, "orders") == []


def test_two_processes_of_one_node_and_one_clock_never_clash(q: Queue) -> None:
    twins = [Producer(q.server, codec=BYTES, minter=Minter(7, lambda: ids.EPOCH_MS + 5)) for _ in range(2)]
    told = [one for twin in twins for one in twin.enqueue_many("orders", [b"x"] * 6)]
    told += [twin.enqueue("orders", b"x") for twin in twins]
    assert all(isinstance(one, Enqueued) and one.added for one in told)
    assert int(q.server.read("ZCARD", q.keys.pending)) == len(told) == 14


def test_of_many_each_is_told_in_its_place(q: Queue) -> None:
    mine, bad = ids.mint(), ids.mint("GRP")
    q.server.write("SET", q.keys.lane(bad), "no zset")
    specs = [1, JobSpec(2, id=mine), JobSpec(3, id=mine), JobSpec(4, lane=bad), JobSpec(5, dedup=Dedup("k"))]
    told = Producer(q.server).enqueue_many("orders", [*specs, JobSpec(6, dedup=Dedup("k"))])
    assert isinstance(told[3], DamagedError)
    well = [one for one in told if isinstance(one, Enqueued)]
    assert [one.added for one in well] == [True, True, False, True, False]
    assert well[2].job == mine
    assert well[4].job == well[3].job


@pytest.mark.parametrize(
    ("codec", "value"),
    [(JSON, {"a": [1, "ü", None, True]}), (MSGPACK, {"a": [1, "ü", b"\xff", None]}), (BYTES, b"\x00\xff")],
)
def test_a_codec_says_it_and_reads_it_back(codec: Codec, value: Any) -> None:
    assert codec.decode(codec.encode(value)) == value


@pytest.mark.parametrize(
    "call",
    [
        lambda p: p.enqueue("orders", {1, 2}),
        lambda p: p.enqueue("orders", float("nan")),
        lambda p: p.enqueue("or{ders", 1),
        lambda p: p.enqueue("orders", 1, lane="tenant 42"),
        lambda p: p.enqueue("orders", 1, delay=-1),
        lambda p: p.enqueue("orders", 1, delay=1.5),
        lambda p: p.enqueue("orders", 1, at=datetime(2090, 1, 1)),
        lambda p: p.enqueue("orders", 1, at=1_790_000_000),
        lambda p: p.enqueue("orders", 1, at=NOON, delay=1),
        lambda p: p.enqueue("orders", 1, id="JOB1"),
        lambda p: p.enqueue_many("orders", [1, 2, JobSpec(3, lane="GRP1")]),
        lambda p: p.add_flow("orders", FlowSpec(1)),
        lambda p: p.repeat("orders", "tick", 0, 1),
        lambda p: BYTES.encode(7),
        lambda p: JSON.decode(b"{"),
        lambda p: MSGPACK.decode(b"\x92\x01"),
        lambda p: MSGPACK.encode(object()),
    ],
)
def test_what_cant_be_is_refused_before_anything_is_sent(server: Server, call: Any) -> None:
    with pytest.raises(BadInputError):
        call(Producer(server))
    assert dump(server) == {}


def test_flows_repeatables_and_limits(q: Queue) -> None:
    producer = Producer(q.server)
    flow = FlowSpec("root", [FlowSpec("a"), FlowSpec("b", queue="slow", on_death=ParentPolicy.IGNORE)], id=ids.mint())
    added = producer.add_flow("orders", flow)
    assert (added.added, producer.add_flow("orders", flow).added) == (True, False)
    child = jobs.read_row(Queue(q.server, "slow"), added.children[1].job) or {}
    assert (child[b"parent"], child[b"parent_policy"]) == (added.job.encode(), b"id")
    many = producer.add_flows("orders", [FlowSpec("x", [FlowSpec("y")]), FlowSpec("no children")])
    assert isinstance(many[1], BadInputError)
    assert producer.repeat("orders", "tick", timedelta(hours=1), {"t": 1}, first_in=60_000)
    assert not producer.repeat("orders", "tick", 1_000, {"t": 2})
    [tick] = producer.repeatables("orders")
    assert (tick.every_ms, tick.template) == (3_600_000, b'{"t":1}')
    control.set_concurrency(q, 5)
    control.set_rate(q, 1)
    assert claims.claim(q, 60_000) is not None
    limits = producer.limits("orders")
    assert (limits.concurrency, limits.rate, limits.in_flight) == (5, 1, 1)
    assert 0 < limits.rate_wait_ms <= 1_000


def test_the_awaited_calls_do_the_same(valkey: Valkey, q: Queue) -> None:
    async def main() -> None:
        async with AsyncProducer(valkey.url, codec=JSON) as producer:
            calls = [producer.enqueue("orders", n) for n in range(300)]
            bad = producer.enqueue("orders", 1, lane="no lane")
            told = await asyncio.gather(*calls, bad, return_exceptions=True)
            assert isinstance(told[-1], BadInputError)
            assert all(isinstance(one, Enqueued) and one.added for one in told[:-1])
            many = await producer.enqueue_many("orders", range(3))
            held = await producer.enqueue("orders", 1, dedup=Dedup("k"), delay=60_000)
            assert await producer.holder("orders", "k") == held.job
            assert await producer.state("orders", held.job) == "scheduled"
            assert await producer.cancel("orders", held.job) == "removed"
            flow = await producer.add_flow("orders", FlowSpec("root", [FlowSpec("a")]))
            assert flow.added
            assert len(await producer.add_flows("orders", [FlowSpec("root", [FlowSpec("a")])])) == 1
            assert await producer.repeat("orders", "tick", 1_000, "t")
            assert [one.name for one in await producer.repeatables("orders")] == ["tick"]
            assert await producer.stop_repeating("orders", "tick")
            assert await producer.limits("orders") == Limits(None, None, 0, 0)
            assert len(many) == 3
        assert int(q.server.read("ZCARD", q.keys.pending)) == 305

    asyncio.run(main())


def test_a_server_that_is_away_is_told_to_every_call(valkey: Valkey) -> None:
    async def main() -> None:
        producer = AsyncProducer("redis://127.0.0.1:1")
        told = await asyncio.gather(*(producer.enqueue("orders", n) for n in range(3)), return_exceptions=True)
        assert [type(one) for one in told] == [UnreachableError] * 3
        await producer.close()

    asyncio.run(main())

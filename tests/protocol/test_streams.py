"""Streams: the fate of each record of a batch, and retention that regards groups and archive."""

from __future__ import annotations

import pytest

from emq_ops.protocol.errors import BadInputError, DamagedError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import groups, streams
from emq_ops.protocol.transitions.groups import Member
from emq_ops.protocol.transitions.streams import Retained
from tests.support.keyspace import dump


@pytest.fixture
def q(server: Server) -> Queue:
    return Queue(server, "orders")


def test_a_batch_tells_the_fate_of_each_record(q: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "CHUNK", 2)
    told = streams.append_each(q, "s", [[("n", str(n))] for n in range(5)])
    assert [record.event for record in streams.read(q, "s")] == told
    assert sorted(set(told), key=str) == told
    q.server.write("XADD", q.keys.stream("s"), "9999999999999-0", "a", "b")
    refused = streams.append_each(q, "s", [[("n", "1")]] * 3)
    assert [type(one) for one in refused] == [DamagedError] * 3
    assert streams.length(q, "s") == 6
    before = dump(q.server)
    with pytest.raises(BadInputError):
        streams.append_each(q, "other", [[("n", "1")], []])
    assert dump(q.server) == before


@pytest.mark.parametrize("slice_size", [2, 1000])
def test_retention_leaves_what_a_group_needs(q: Queue, monkeypatch: pytest.MonkeyPatch, slice_size: int) -> None:
    monkeypatch.setattr(streams, "RETAIN_SLICE", slice_size)
    events = streams.append_many(q, "s", [[("n", str(n))] for n in range(10)])
    groups.create(q, "s", "quick", "0")
    groups.create(q, "s", "slow", "0")
    quick, slow = Member("s", "quick", "c"), Member("s", "slow", "c")
    groups.acknowledge(q, quick, [one.stream_id for one in groups.fresh(q, quick, 8)])
    held = groups.fresh(q, slow, 5)
    groups.acknowledge(q, slow, [held[0].stream_id, held[1].stream_id, held[3].stream_id])
    assert streams.retain(q, "s", keep=3) == Retained(2, "slow", held[2].stream_id)
    groups.acknowledge(q, slow, [one.stream_id for one in held])
    assert streams.retain(q, "s", keep=3) == Retained(3, "slow", streams.read(q, "s")[0].stream_id)
    groups.acknowledge(q, slow, [one.stream_id for one in groups.fresh(q, slow, 9)])
    assert streams.retain(q, "s", keep=3) == Retained(2)
    assert [record.event for record in streams.read(q, "s")] == events[7:]
    assert streams.retain(q, "s", keep=3) == Retained(0)
    assert streams.retain(q, "s", before_ms=q.server.now_ms("orders") + 1000).held_by == "quick"
    groups.acknowledge(q, quick, [one.stream_id for one in groups.fresh(q, quick, 9)])
    assert streams.retain(q, "s", before_ms=q.server.now_ms("orders") + 1000) == Retained(2)
    assert streams.length(q, "s") == 0


def test_retention_leaves_what_is_not_archived(q: Queue) -> None:
    events = streams.append_many(q, "s", [[("n", str(n))] for n in range(4)])
    streams.put_archived(q, "s", events[1])
    first_left = streams.read(q, "s")[2].stream_id
    assert streams.retain(q, "s", keep=0) == Retained(2, "archive", first_left)
    assert streams.retain(q, "s", keep=2) == Retained(0)
    streams.put_archived(q, "s", "nonsense")
    with pytest.raises(BadInputError):
        streams.retain(q, "s", keep=0)
    assert [record.event for record in streams.read(q, "s")] == events[2:]


def test_a_key_of_another_type(q: Queue) -> None:
    q.server.write("SET", q.keys.stream("s"), "x")
    before = dump(q.server)
    member = Member("s", "g", "c")
    for call in (
        lambda: streams.retain(q, "s", keep=0),
        lambda: groups.keep(q, member, ["1-1"]),
        lambda: groups.bury(q, member, "1-1", "dead", [("a", "b")]),
    ):
        with pytest.raises(DamagedError, match="EMQDATA"):
            call()
    assert dump(q.server) == before

"""The keyspace that the real system wrote: counts, states, browsing and every invariant."""

from __future__ import annotations

import pytest

from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import control, reads, repeat
from tests.support.invariants import QueueView, violations
from tests.support.keyspace import dump, live_keyspace, load_live

QUEUES = ("mail", "orders", "render", "reports")
TABLE = {  # from the recording's own page
    "orders": {"pending": 89, "active": 17, "schedule": 44, "dead": 62},
    "mail": {"pending": 0, "active": 18, "schedule": 0, "dead": 20},
    "reports": {"pending": 18, "active": 0, "schedule": 0, "dead": 4},
    "render": {"pending": 2, "active": 0, "schedule": 0, "dead": 0},
}
LAPSED = {"orders": 9, "mail": 12, "reports": 0, "render": 0}


@pytest.fixture
def live(server: Server) -> Server:
    load_live(server)
    return server


def test_it_is_loaded_whole(live: Server) -> None:
    assert sorted(dump(live)) == sorted(live_keyspace())
    assert live.queues() == sorted(QUEUES)


@pytest.mark.parametrize("name", QUEUES)
def test_counts_agree_with_its_table(name: str, live: Server) -> None:
    q = Queue(live, name)
    counts = reads.counts(q)
    assert {place: getattr(counts, place) for place in TABLE[name]} == TABLE[name]
    assert len(live.read("ZRANGEBYSCORE", q.keys.active, "-inf", live.now_ms(name))) == LAPSED[name]
    assert reads.is_paused(q) is (name == "reports")


def test_lanes(live: Server) -> None:
    lanes = reads.lanes(Queue(live, "mail"))
    assert len([lane for lane in lanes if lane.waiting]) == 6
    assert sum(lane.waiting for lane in lanes) == 100
    assert sum(lane.in_flight for lane in lanes) == 18


@pytest.mark.parametrize("name", QUEUES)
def test_every_invariant_holds(name: str, live: Server) -> None:
    assert violations(live, name) == []


@pytest.mark.parametrize("name", QUEUES)
def test_job_states_agree_with_membership(name: str, live: Server) -> None:
    q, view = Queue(live, name), QueueView(dump(live), name)
    expected: dict[str, reads.JobState] = {}
    for place, state in (("pending", "pending"), ("active", "active"), ("schedule", "scheduled"), ("dead", "dead")):
        expected |= {job: reads.JobState(state) for job in view.zset(place)}
    for members in view.lanes.values():
        expected |= dict.fromkeys(members, reads.JobState.PENDING)
    for job in view.rows:
        assert reads.job_state(q, job) is expected.get(job, reads.JobState.AWAITING_CHILDREN)
    held = [job for job in view.rows if job not in expected]
    assert len(held) == (9 if name == "reports" else 0)
    assert reads.job_state(q, ids.mint()) is reads.JobState.ABSENT


def test_browsing_by_mint_time(live: Server) -> None:
    q = Queue(live, "orders")
    everything = [i.decode() for i in live.read("ZRANGE", q.keys.dead, 0, -1)]
    assert reads.browse(q, "dead") == everything
    assert list(reads.iterate(q, "dead", page=7)) == everything
    minted = [ids.parse(i).unix_ms for i in everything]
    low, high = minted[10], minted[40]
    assert reads.browse(q, "dead", start_ms=low, end_ms=high) == [
        i for i, ms in zip(everything, minted, strict=True) if low <= ms <= high
    ]
    assert (
        reads.browse(q, "dead", start_ms=high + 1, limit=3)
        == [i for i, ms in zip(everything, minted, strict=True) if ms > high][:3]
    )
    lane = reads.lanes(Queue(live, "mail"))[0]
    assert len(reads.browse(Queue(live, "mail"), "lane", group=lane.group)) == lane.waiting


def test_repeatables(live: Server) -> None:
    q = Queue(live, "reports")
    assert [(r.name, r.every_ms) for r in repeat.repeatables(q)] == [("hourly", 3_600_000), ("nightly", 86_400_000)]
    assert repeat.due(q) == []


def test_repeatables_live_by_the_servers_clock(server: Server) -> None:
    q = Queue(server, "q")
    assert repeat.register(q, "tick", 3_600_000, b"t\xff", first_in_ms=0)
    assert not repeat.register(q, "tick", 5, b"other")
    then = server.now_ms("q")
    while server.now_ms("q") <= then:
        pass
    assert repeat.due(q) == ["tick"]
    job = ids.mint()
    before = server.now_ms("q")
    assert repeat.advance(q, "tick", job)
    assert not repeat.advance(q, "tick", ids.mint())
    assert before <= repeat.repeatables(q)[0].next_ms - 3_600_000 <= server.now_ms("q")  # a period after it ran
    assert reads.browse(q, "pending") == [job]
    assert repeat.cancel(q, "tick")
    assert not repeat.cancel(q, "tick")
    assert not repeat.advance(q, "tick", ids.mint())


def test_streams_outbox_and_others_survive_an_obliteration(live: Server) -> None:
    before = dump(live)
    q = Queue(live, "render")
    control.pause_queue(q)
    while not control.obliterate(q):
        pass
    after = dump(live)
    assert "emq:{render}:flow:outbox" in after
    assert {k: v for k, v in before.items() if "{render}" not in k} == {
        k: v for k, v in after.items() if "{render}" not in k
    }

"""Lanes by weight: each has its share of the claims, however many a call takes and whoever calls."""

from __future__ import annotations

from collections import Counter

import pytest

from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.transitions import aside, claims, control, enqueue
from emq_ops.worker import Consumer, ConsumerSettings, Job
from tests.support.invariants import violations

HEAVY, LIGHT = ids.mint("GRP"), ids.mint("GRP")
LEASE = 60_000


def fill(q: Queue, jobs: int, *lanes: str | None) -> None:
    enqueue.enqueue_many(q, [enqueue.NewJob(ids.mint(), b"ok", lane) for _ in range(jobs) for lane in lanes])


@pytest.mark.parametrize("size", [1, 5])
def test_a_lane_is_served_as_often_as_it_weighs_whatever_a_call_takes(q: Queue, size: int) -> None:
    control.weight_lane(q, HEAVY, 3)
    fill(q, 20, HEAVY, LIGHT)
    other = Queue(q.server, q.name)
    order = []
    while len(order) < 20:
        order += [claim.group for claim in claims.claim_lane_batch(q, LEASE, size, weighted=True)]
        q, other = other, q
    assert order[:20] == [HEAVY, HEAVY, HEAVY, LIGHT] * 5
    assert violations(q.server, q.name) == []


def test_a_turn_ends_where_its_lane_has_no_room_or_no_more_jobs(q: Queue) -> None:
    control.weight_lane(q, HEAVY, 10)
    control.limit_lane(q, HEAVY, 2)
    fill(q, 3, HEAVY, LIGHT)
    order = [claim.group for _ in range(6) for claim in claims.claim_lane_batch(q, LEASE, 1, weighted=True)]
    assert order == [HEAVY, HEAVY, LIGHT, LIGHT, LIGHT]
    assert violations(q.server, q.name) == []


def test_a_weight_that_is_no_number_is_one_and_named(q: Queue) -> None:
    q.server.write("HSET", q.keys.gweight, HEAVY, "2.5")
    fill(q, 2, HEAVY, LIGHT)
    order = [claim.group for claim in claims.claim_lane_batch(q, LEASE, 4, weighted=True)]
    assert order == [HEAVY, LIGHT, HEAVY, LIGHT]
    assert list(aside.listing(q)) == [HEAVY]
    control.weight_lane(q, HEAVY, 2)
    aside.tidy(q)
    assert aside.listing(q) == {}


def test_lanes_that_became_empty_on_the_ring_do_not_hide_the_others(q: Queue) -> None:
    gone = [ids.mint("GRP") for _ in range(5)]
    q.server.write("RPUSH", q.keys.ring, *gone)
    fill(q, 1, LIGHT)
    assert [claim.group for claim in claims.claim_lane_batch(q, LEASE, 1, weighted=True)] == [LIGHT]
    assert q.server.read("LLEN", q.keys.ring) == 0


def test_a_worker_takes_flat_jobs_and_lanes_in_turn_and_lanes_by_weight(q: Queue) -> None:
    control.weight_lane(q, HEAVY, 3)
    fill(q, 12, HEAVY, LIGHT, None)
    order: list[str | None] = []

    def handler(job: Job) -> None:
        order.append(job.group)

    Consumer(q, handler, ConsumerSettings(cancel=False, record=False), concurrency=1).run(until_idle=True)
    assert Counter(order[:16]) == {None: 8, HEAVY: 6, LIGHT: 2}
    assert Counter(order) == {None: 12, HEAVY: 12, LIGHT: 12}

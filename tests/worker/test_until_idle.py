"""``until_idle`` ends only on a look that was begun with nothing in hand."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Literal

import pytest

from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import control, enqueue
from emq_ops.protocol.transitions.claims import Claim
from emq_ops.worker import Consumer, ConsumerSettings
from tests.support.consuming import eventually


def slowed(look: Callable[[int], list[Claim]], meanwhile: Callable[[], None]) -> Callable[[int], list[Claim]]:
    """`look`, with `meanwhile` between what it found and who asked, whenever it found nothing."""

    def claim(free: int) -> list[Claim]:
        found = look(free)
        if not found:
            meanwhile()
        return found

    return claim


@pytest.mark.parametrize("claim", [("lanes",), ("flat", "lanes")])
def test_a_job_that_settles_while_the_consumer_looks_frees_its_lane(
    server: Server, claim: tuple[Literal["flat", "lanes"], ...]
) -> None:
    q = Queue(server, "orders")
    lane = ids.mint("GRP")
    control.limit_lane(q, lane, 1)
    assert enqueue.enqueue_many(q, [enqueue.NewJob(ids.mint(), b"x", lane) for _ in range(3)]) == [True] * 3
    go = threading.Semaphore(0)

    def handler(_: object) -> None:
        assert go.acquire(timeout=20)

    consumer = Consumer(q, handler, ConsumerSettings(claim=claim, cancel=False), concurrency=2)

    def settle_meanwhile() -> None:
        if consumer.in_hand:
            go.release()
            eventually(lambda: not consumer.in_hand, "the job in hand is settled")

    consumer._sources.claim = slowed(consumer._sources.claim, settle_meanwhile)  # type: ignore[method-assign]  # the race, always
    report = consumer.run(until_idle=True)
    assert (report.completed, report.abandoned) == (3, ())

"""The worker on a Cluster and behind Sentinels, with a failover while it works."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import connect
from emq_ops.protocol.slots import slot
from emq_ops.protocol.transitions import enqueue, reads
from emq_ops.worker import CancelAnswer, Consumer, ConsumerSettings, Job, cancel
from tests.support.cluster import Cluster
from tests.support.consuming import Told, eventually, records
from tests.support.sentinel import Sentinel

JOBS = 120


@contextmanager
def cluster() -> Iterator[tuple[str, Callable[[], None]]]:
    with Cluster(replicas=1) as found:
        yield found.url, lambda: found.fail_over(slot("{orders}"))


@contextmanager
def sentinel() -> Iterator[tuple[str, Callable[[], None]]]:
    with Sentinel() as found:
        yield found.url, found.lose_primary


def ended(q: Queue, job: str) -> bool:
    return reads.job_state(q, job) is reads.JobState.ABSENT


@pytest.mark.parametrize("place", [cluster, sentinel])
def test_a_failover_while_jobs_are_in_hand(place: Callable[[], object]) -> None:
    told = Told()

    def handler(job: Job) -> bytes:
        job.token.wait(0.01 if job.payload != b"until cancelled" else 60)
        job.token.raise_if_cancelled()
        return b"done"

    with place() as (url, fail_over), connect(url) as server:  # type: ignore[attr-defined]  # a context manager
        q = Queue(server, "orders")
        groups = [ids.mint("GRP") for _ in range(4)]
        news = [enqueue.NewJob(ids.mint(), b"x", groups[n % 4] if n % 2 else None) for n in range(JOBS)]
        enqueue.enqueue_many(q, news)
        with Consumer(q, handler, ConsumerSettings(lease=2_000, beat=50), concurrency=4, on_event=told):
            eventually(lambda: len(told.outcomes()) >= JOBS // 4, "some are done")
            fail_over()
            # What was acknowledged but not replicated may come again; the rest goes on by itself.
            eventually(lambda: all(ended(q, new.job) for new in news), "all done", timeout=60)
            # The listener is back as well.
            last = ids.mint()
            enqueue.enqueue(q, last, b"until cancelled")
            eventually(lambda: reads.job_state(q, last) is reads.JobState.ACTIVE, "in hand")
            eventually(
                lambda: cancel.request(q, last, "enough") is CancelAnswer.GONE or told.outcomes().get(last), "cancelled"
            )
        found = [fields[b"job"].decode() for fields in records(q)]
        assert len(found) == len(set(found)) == reads.counts(q).completed
        assert {*found, last} == {*(new.job for new in news), last}
        assert told.outcomes()[last] == ["cancelled"]

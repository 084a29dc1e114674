"""A job three leases long with checkpoints, and its neighbour whose worker went silent."""

from __future__ import annotations

import threading
import time

import pytest

from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import claims, enqueue, jobs, reads, recover
from emq_ops.worker import Consumer, ConsumerSettings, Job
from tests.support.consuming import Told, eventually, records

LEASE = 400


@pytest.mark.parametrize(("threshold", "recovered"), [(1, 0), (3, 2)])
def test_checkpoints_keep_a_long_job_and_silence_loses_one(server: Server, threshold: int, recovered: int) -> None:
    q = Queue(server, "render")
    silent, long = ids.mint(), ids.mint()
    told = Told()
    claimed = threading.Event()

    def handler(job: Job) -> bytes:
        claimed.set()
        end = time.monotonic() + 3 * LEASE / 1000
        while time.monotonic() < end:
            job.token.wait(LEASE / 4000)
            job.extend(LEASE)
        return b"rendered"

    enqueue.enqueue(q, long, b"three leases")
    options = {"lease": LEASE, "keep": False, "recovery": "none", "concurrency": 1}
    with Consumer(q, handler, ConsumerSettings(**options), on_event=told):  # type: ignore[arg-type]  # of many types
        assert claimed.wait(20)
        enqueue.enqueue(q, silent, b"its worker goes silent")
        swept: list[str] = []
        while reads.job_state(q, silent) is not reads.JobState.DEAD:
            # Whoever claims it says nothing more. Our consumer's one thread is busy with the long job.
            claims.claim(q, LEASE // 4)
            found = recover.sweep(q, threshold)
            assert long not in [*found.recovered, *found.dead]
            swept += found.recovered
            time.sleep(0.01)
        assert swept == [silent] * recovered
        row = jobs.read_row(q, silent)
        assert row is not None
        assert (row[b"last_error"], row[b"stalled"]) == (b"stalled", str(threshold).encode())
        assert row[b"attempts"] == str(threshold).encode()
        while not told.outcomes():
            assert recover.sweep(q, threshold).dead == []
            time.sleep(0.01)
    assert told.outcomes() == {long: ["completed"]}
    [fields] = eventually(lambda: records(q), "recorded")
    assert int(fields[b"settled_at"]) - int(fields[b"started_at"]) >= 3 * LEASE
    assert fields[b"attempts"] == b"1"

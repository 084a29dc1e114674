"""Ceiling and rate of a queue, with workers in two processes: neither is ever passed."""

from __future__ import annotations

import threading

import pytest

from emq_ops.protocol import ids
from emq_ops.protocol.errors import RateError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import connect
from emq_ops.protocol.transitions import claims, control, enqueue, reads
from tests.support.consuming import records
from tests.support.run_worker import start_worker
from tests.support.valkey import Valkey
from tests.support.zygote import Zygote

RATE, JOBS, CEILING = 40, 90, 3


def test_no_limit_is_passed_by_two_workers(q: Queue, valkey: Valkey, zygote: Zygote) -> None:
    control.set_rate(q, RATE)
    control.set_concurrency(q, CEILING)
    lanes = [None, ids.mint("GRP")]
    enqueue.enqueue_many(q, [enqueue.NewJob(ids.mint(), b"sleep 0.002", lanes[n % 2]) for n in range(JOBS)])
    most: list[int] = [0]
    done = threading.Event()

    def sample() -> None:
        with connect(valkey.url) as own:
            while not done.is_set():
                most[0] = max(most[0], int(own.read("ZCARD", q.keys.active)))

    sampler = threading.Thread(target=sample)
    sampler.start()
    handler = "tests.support.handlers:obedient"
    workers = [start_worker(zygote, valkey.url, q.name, handler, concurrency=4) for _ in range(2)]
    codes = [worker.wait() for worker in workers]
    done.set()
    sampler.join(20)
    assert codes == [0, 0]
    claimed = sorted(int(fields[b"started_at"]) for fields in records(q))
    assert len(claimed) == JOBS
    windows: list[list[int]] = []
    for at in claimed:
        if not windows or at >= windows[-1][0] + 1000:
            windows.append([])
        windows[-1].append(at)
    assert max(map(len, windows)) <= RATE
    assert 1 < most[0] <= CEILING


def test_the_rate_tells_when_it_opens_and_counts_in_the_window_of_others(q: Queue) -> None:
    control.set_rate(q, 3)
    enqueue.enqueue_many(q, [enqueue.NewJob(ids.mint(), b"") for _ in range(9)])
    q.server.write("SET", q.keys.limiter, "1", "PX", 60_000)
    assert len(claims.claim_batch(q, 60_000, 9)) == 2
    with pytest.raises(RateError) as refused:
        claims.claim(q, 60_000)
    assert 50_000 < (refused.value.wait_ms or 0) <= 60_000
    assert 50_000 < reads.rate_wait_ms(q) <= 60_000
    # One that never expires limits nobody, here as in the reference: a window of ours takes its place.
    q.server.write("SET", q.keys.limiter, "100")
    assert len(claims.claim_batch(q, 60_000, 9)) == 3
    assert 0 < int(q.server.read("PTTL", q.keys.limiter)) <= 1000

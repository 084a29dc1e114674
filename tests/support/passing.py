"""Queues in the states that passes meet, and waiting on conditions of a server."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.lease.queue_lease import QueueLease
from emq_ops.passes.report import SweepReport, TrimReport
from emq_ops.passes.sweep.stalled_sweep import sweep
from emq_ops.passes.trim.dead_trim import trim
from emq_ops.policy.models import DeadPolicy, StalledPolicy
from emq_ops.protocol.fence import Fence
from emq_ops.protocol.ids import mint
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions.claims import claim, claim_lane
from emq_ops.protocol.transitions.enqueue import enqueue

Recorder = list[Any]


def until(condition: Callable[[], object], what: str = "it", seconds: float = 20.0) -> None:
    """Blocks until `condition` holds; fails the test after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
        time.sleep(0.005)


def add(q: Queue, count: int = 1, group: str | None = None, payload: bytes = b"x") -> list[str]:
    """New jobs, in mint order."""
    jobs = [mint() for _ in range(count)]
    for job in jobs:
        enqueue(q, job, payload, group=group)
    return jobs


def take(q: Queue, count: int = 1, lease_ms: int = 1, *, lane: bool = False) -> list[str]:
    """Claims that nobody will settle."""
    got = [(claim_lane if lane else claim)(q, lease_ms) for _ in range(count)]
    return [one.job for one in got if one is not None]


def lapse(q: Queue) -> None:
    """Waits until every lease of the queue has lapsed."""
    until(lambda: q.server.read("ZCOUNT", q.keys.active, q.server.now_ms(q.name), "+inf") == 0, "lapse")


def stall(q: Queue, count: int = 1) -> list[str]:
    """New jobs that were claimed and whose lease has lapsed."""
    jobs = add(q, count)
    take(q, count)
    lapse(q)
    return jobs


def kill_row(q: Queue, count: int, **fields: str) -> list[str]:
    """Dead jobs as others leave them: row, member, counter; in one flush."""
    jobs = [mint() for _ in range(count)]
    values = {"state": "dead", "attempts": "1", "payload": "p", "last_error": "boom", **fields}
    flat = [x for pair in values.items() for x in pair]
    q.server.read_many([("HSET", q.keys.row(job), *flat) for job in jobs])
    for first in range(0, len(jobs), 500):
        q.server.write("ZADD", q.keys.dead, *[x for job in jobs[first : first + 500] for x in (0, job)])
    q.server.write("HINCRBY", q.keys.failed, "count", count)
    return jobs


def dead_of(q: Queue) -> list[str]:
    """The dead set, in mint order."""
    return [job.decode() for job in q.server.read("ZRANGE", q.keys.dead, 0, -1)]


def row_of(q: Queue, job: str) -> dict[str, str]:
    """A row as text."""
    flat = [value.decode() for value in q.server.read("HGETALL", q.keys.row(job))]
    return dict(zip(flat[::2], flat[1::2], strict=True))


@contextlib.contextmanager
def leading(server: Server, ledger: Ledger, queue: str, lease_ms: int = 30_000) -> Iterator[Fence]:
    """The queue's lease for the length of the ``with``."""
    leadership = QueueLease(server, ledger, queue, lease_ms=lease_ms)
    fence = leadership.try_acquire()
    try:
        yield fence
    finally:
        leadership.release()


def swept(server: Server, ledger: Ledger, queue: str, **policy: Any) -> SweepReport:
    """One sweep under a lease of its own."""
    with leading(server, ledger, queue) as fence:
        return sweep(server, queue, StalledPolicy(**policy), ledger, fence)


def trimmed(server: Server, ledger: Ledger, queue: str = "mail", **more: Any) -> TrimReport:
    """One trim under a lease of its own."""
    options = {name: more.pop(name) for name in ("archiver", "only", "emit", "trigger") if name in more}
    with leading(server, ledger, queue) as fence:
        return trim(server, queue, DeadPolicy(**more), ledger, fence, **options)

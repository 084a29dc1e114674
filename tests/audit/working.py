"""Jobs that stall, die and are swept, by real claims and real passes."""

from __future__ import annotations

from typing import Any

from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.lease.queue_lease import QueueLease
from emq_ops.passes.sweep.report import SweepReport
from emq_ops.policy.models import StalledPolicy
from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import claims, enqueue, settle
from tests.support.passing import sweep

LONG_MS = 3_600_000


def swept(server: Server, ledger: Ledger, queue: str = "orders", **policy: Any) -> SweepReport:
    """One sweep under a lease of its own."""
    leadership = QueueLease(server, ledger, queue)
    fence = leadership.acquire()
    try:
        return sweep(server, queue, StalledPolicy(**policy), ledger, fence)
    finally:
        leadership.release()


def put(q: Queue, count: int = 1, payload: bytes = b"{}") -> list[str]:
    """Fresh pending jobs."""
    made = [ids.mint() for _ in range(count)]
    for job in made:
        enqueue.enqueue(q, job, payload)
    return made


def lapse(q: Queue, jobs: list[str], ago_ms: int = 1000) -> None:
    """Their leases lapsed `ago_ms` ago."""
    at = q.server.now_ms(q.name) - ago_ms
    for job in jobs:
        q.server.write("ZADD", q.keys.active, "XX", at, job)


def stalled(q: Queue, count: int) -> list[str]:
    """Jobs in flight whose leases have lapsed."""
    put(q, count)
    taken = [claim.job for claim in claims.claim_batch(q, LONG_MS, count)]
    lapse(q, taken)
    return taken


def failed(q: Queue, error: bytes, payload: bytes = b"{}") -> str:
    """A job that died of `error`."""
    [job] = put(q, 1, payload)
    claim = claims.claim(q, LONG_MS)
    assert claim is not None
    assert claim.job == job
    settle.retry(q, job, claim.token, settle.Failure(error, delay_ms=0, max_attempts=1))
    return job

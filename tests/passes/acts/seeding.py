"""Dead jobs to act on, of every kind, and a ledger that knows them."""

from __future__ import annotations

from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.lease.queue_lease import QueueLease
from emq_ops.passes.observe.reconcile import reconcile
from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import claims, enqueue, jobs, settle
from tests.support.passing import context_of

LONG_MS = 3_600_000


def die(q: Queue, error: bytes = b"HTTP 503", group: str | None = None, payload: bytes = b"{}") -> str:
    job = ids.mint()
    enqueue.enqueue(q, job, payload, group=group)
    claim = claims.claim_lane(q, LONG_MS) if group else claims.claim(q, LONG_MS)
    assert claim is not None
    settle.retry(q, job, claim.token, settle.Failure(error, delay_ms=0, max_attempts=1))
    return job


def seed(q: Queue, count: int = 10) -> list[str]:
    """Dead jobs of every kind: flat, in a lane, with logs, with bytes, a flow parent with its books, stalled twice."""
    group = ids.mint("GRP")
    lanes = [group if n % 3 == 0 else None for n in range(count)]
    dead = [die(q, b"boom \xff\x00 %d" % n, lane, b"\x00\xffpayload %d" % n) for n, lane in enumerate(lanes)]
    for job in dead[::2]:
        jobs.add_log(q, job, b"first \xff")
        jobs.add_log(q, job, b"second")
    parent = q.keys.row(dead[1])
    q.server.write("HSET", parent, "stalled", "2", "lease_epoch", "ab12")
    q.server.write("SET", q.keys.book(dead[1], "dependencies"), "0")
    q.server.write("HSET", q.keys.book(dead[1], "failed"), "JOB0STBBIRAKHo", "why \xff")
    q.server.write("HSET", q.keys.book(dead[1], "processed"), "JOB0STBBIRAKHp", "r", "JOB0STBBIRAKHq", "s")
    return dead


def see(server: Server, ledger: Ledger, queue: str = "orders") -> None:
    """The ledger learns of the deaths."""
    leadership = QueueLease(server, ledger, queue)
    reconcile(context_of(server, queue, ledger, leadership.acquire()), server.now_ms(queue))
    leadership.release()

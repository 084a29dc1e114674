"""Queues in the states that passes meet, and waiting on conditions of a server."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.events import nowhere
from emq_ops.passes.frame.context import Context, Services
from emq_ops.passes.frame.contract import Pass
from emq_ops.passes.frame.frame import run_pass
from emq_ops.passes.frame.order import Order
from emq_ops.passes.frame.record import RunRow
from emq_ops.passes.frame.stores import Stores
from emq_ops.passes.lease.kept import GivenLease, KeptLease
from emq_ops.passes.lease.queue_lease import QueueLease
from emq_ops.passes.sweep.declared import SWEEP
from emq_ops.passes.sweep.report import SweepReport
from emq_ops.passes.trim.archiver import DeadArchiver
from emq_ops.passes.trim.declared import TRIM
from emq_ops.passes.trim.report import TrimReport
from emq_ops.policy.models import DeadPolicy, StalledPolicy
from emq_ops.protocol.fence import Fence
from emq_ops.protocol.ids import mint
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions.claims import claim, claim_lane
from emq_ops.protocol.transitions.enqueue import enqueue
from tests.support.waiting import first_true

Recorder = list[Any]


def until(condition: Callable[[], object], what: str = "it", seconds: float = 20.0) -> None:
    """Blocks until `condition` holds; fails the test after `seconds`."""
    first_true(condition, seconds, lambda: f"{what} did not happen within {seconds} s")


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


def running(server: Server, ledger: Ledger, **more: Any) -> Services:
    """What passes run with; `archiver`: where trims archive dead jobs to; `windows`, `emit`: as in Services."""
    if "archiver" in more:
        more["stores"] = ShelfStores(more.pop("archiver"))
    if "windows" in more:
        windows = more["windows"]
        more["windows"] = lambda: windows
    return Services(server, ledger, **more)


class ShelfStores(Stores):
    """Stores whose archive of dead jobs is given."""

    def __init__(self, archiver: DeadArchiver | Callable[[Fence], DeadArchiver] | None) -> None:
        super().__init__(None, None)
        self._archiver = archiver

    @property
    def configured(self) -> bool:
        return self._archiver is not None

    def dead_archive(
        self, q: Queue, policy: DeadPolicy, fence: Fence, ledger: Ledger, *, paced: bool = False
    ) -> DeadArchiver:
        assert self._archiver is not None
        return self._archiver(fence) if callable(self._archiver) else self._archiver


def run_by(what: Pass, server: Server, order: Order, ledger: Ledger, fence: Fence, **more: Any) -> Any:
    """The report of one run of a pass under a lease that the caller keeps."""
    return run_pass(running(server, ledger, **more), what, order, GivenLease(fence)).report


def sweep(server: Server, queue: str, policy: StalledPolicy, ledger: Ledger, fence: Fence, **more: Any) -> SweepReport:
    """One sweep under a lease that the caller keeps."""
    order = Order(queue, policy, trigger=more.pop("trigger", "command"), lease_ms=policy.lease_ms)
    report: SweepReport = run_by(SWEEP, server, order, ledger, fence, **more)
    return report


def trim(server: Server, queue: str, policy: DeadPolicy, ledger: Ledger, fence: Fence, **more: Any) -> TrimReport:
    """One trim under a lease that the caller keeps."""
    given = {name: more.pop(name) for name in ("trigger", "only", "lease_ms") if name in more}
    order = Order(queue, policy, applied=False, **given)
    report: TrimReport = run_by(TRIM, server, order, ledger, fence, **more)
    return report


def context_of(server: Server, queue: str, ledger: Ledger, fence: Fence | None, run: str = "") -> Context:
    """A run of a sweep under way, for parts of passes."""
    order = Order(queue, StalledPolicy())
    record = RunRow(nowhere, SWEEP.name, order)
    record.run = run
    return Context(SWEEP.name, order, running(server, ledger), server, SweepReport(queue), record, fence)


@contextlib.contextmanager
def kept(server: Server, ledger: Ledger, queue: str, lease_ms: int = 15_000) -> Iterator[Fence]:
    """The queue's lease for the length of the ``with``, renewed by a thread of its own."""
    with KeptLease(QueueLease(server, ledger, queue, lease_ms=lease_ms)) as lease:
        yield lease.hold()


def swept(server: Server, ledger: Ledger, queue: str, **policy: Any) -> SweepReport:
    """One sweep under a lease of its own."""
    with leading(server, ledger, queue) as fence:
        return sweep(server, queue, StalledPolicy(**policy), ledger, fence)


def trimmed(server: Server, ledger: Ledger, queue: str = "mail", **more: Any) -> TrimReport:
    """One trim under a lease of its own."""
    options = {name: more.pop(name) for name in ("archiver", "only", "emit", "trigger") if name in more}
    with leading(server, ledger, queue) as fence:
        return trim(server, queue, DeadPolicy(**more), ledger, fence, **options)

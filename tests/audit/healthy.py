"""A healthy queue of any size, made by the tool's own transitions, and traffic beside it."""

from __future__ import annotations

import contextlib
import itertools
import threading
from dataclasses import dataclass, field

from emq_ops.protocol.errors import DamagedError
from emq_ops.protocol.ids import Minter
from emq_ops.protocol.keyspace import Keys
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server, connect
from emq_ops.protocol.transitions import claims, control, enqueue, jobs, repeat, settle
from emq_ops.protocol.transitions.enqueue import NewJob

LONG_MS = 3_600_000


@dataclass
class Healthy:
    """What stands in the queue, by place. Lanes: `held` are paused or at their limit, so that traffic leaves them
    alone; `free` have work and are on the ring."""

    q: Queue
    pending: list[str] = field(default_factory=list)
    active: list[str] = field(default_factory=list)
    scheduled: list[str] = field(default_factory=list)
    dead: list[str] = field(default_factory=list)
    full: list[str] = field(default_factory=list)
    paused: list[str] = field(default_factory=list)
    free: list[str] = field(default_factory=list)
    lane_jobs: dict[str, list[str]] = field(default_factory=dict)
    lane_active: dict[str, str] = field(default_factory=dict)

    @property
    def k(self) -> Keys:
        return self.q.keys

    @property
    def jobs(self) -> set[str]:
        waiting = itertools.chain.from_iterable(self.lane_jobs.values())
        return {*self.pending, *self.active, *self.scheduled, *self.dead, *waiting, *self.lane_active.values()}


def build(server: Server, name: str = "orders", *, size: int = 100, lanes: int = 9) -> Healthy:
    """`size` jobs (about): a third pending, a third in lanes, the rest active, scheduled and dead; logs, repeatables,
    deduplication keys, a stream."""
    world = Healthy(Queue(server, name))
    q, minter = world.q, Minter(node=1)
    tenth = max(size // 10, 4)

    def put(count: int, group: str | None = None) -> list[str]:
        ids = [minter.mint("JOB") for _ in range(count)]
        for first in range(0, count, 1000):
            enqueue.enqueue_many(
                q, [NewJob(job, f"payload of {job}".encode(), group) for job in ids[first : first + 1000]]
            )
        return ids

    put(2 * tenth)
    for claim in claims.claim_batch(q, LONG_MS, tenth):
        settle.retry(q, claim.job, claim.token, settle.Failure(f"HTTP 503 for {claim.job}", delay_ms=0, max_attempts=1))
        world.dead.append(claim.job)
    world.active = [claim.job for claim in claims.claim_batch(q, LONG_MS, tenth)]
    for _ in range(tenth):
        job = minter.mint("JOB")
        enqueue.schedule_in(q, job, b"later", LONG_MS)
        world.scheduled.append(job)
    for number in range(lanes):
        group = minter.mint("GRP")
        world.lane_jobs[group] = put(max(3 * tenth // lanes, 3), group)
        if number % 3 == 0:
            control.pause_lane(q, group)
            world.paused.append(group)
            continue
        (world.full if number % 3 == 1 else world.free).append(group)
    # One turn of the ring: a job of each lane in flight.
    for claim in claims.claim_lane_batch(q, LONG_MS, len(world.full) + len(world.free)):
        world.lane_active[claim.group or ""] = claim.job
        world.lane_jobs[claim.group or ""].remove(claim.job)
    for group in world.full:
        control.limit_lane(q, group, 1)
    world.pending = put(3 * tenth)
    for job in world.active[:3]:
        jobs.add_log(q, job, b"a line")
    repeat.register(q, "hourly", LONG_MS, b"{}")
    server.write("SET", q.keys.dedup("one"), world.pending[0])
    server.write("SET", q.keys.dedup("for a while"), "JOB0STBBIRAKHo", "PX", LONG_MS)
    server.write("XADD", q.keys.stream("completions"), "1-1", "a", "b")
    server.write("SET", "{emq}:version", "echomq:3.0.0")
    return world


_PAST_MS = itertools.count(1_710_000_000_000, 60_000)


class Traffic:
    """Producers and consumers on threads of their own: flat jobs, and lanes of their own. Their flat jobs are minted
    in the past, so that they are claimed before any that stands there; each thread enqueues before it claims. Without
    `serves_lanes` nobody claims from lanes. What damage refuses (EMQDATA) they leave, and go on."""

    def __init__(self, url: str, name: str = "orders", threads: int = 2, *, serves_lanes: bool = True) -> None:
        self.url, self.name, self.serves_lanes = url, name, serves_lanes
        self.settled = 0
        self._past_ms = next(_PAST_MS)  # its own, so that no id is minted twice
        self._stop = threading.Event()
        self._faults: list[BaseException] = []
        self._threads = [threading.Thread(target=self._guard, args=(n,)) for n in range(threads)]

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if self._faults:
            raise self._faults[0]

    def _guard(self, number: int) -> None:
        try:
            self._run(number)
        except BaseException as fault:
            self._faults.append(fault)

    def _run(self, number: int) -> None:
        minter = Minter(node=900 + number, clock=lambda: self._past_ms)
        with connect(self.url) as server:
            q, group = Queue(server, self.name), minter.mint("GRP")
            for turn in itertools.count():
                if self._stop.is_set():
                    return
                with contextlib.suppress(DamagedError):
                    self._turn(q, minter, group, turn)

    def _turn(self, q: Queue, minter: Minter, group: str, turn: int) -> None:
        enqueue.enqueue(q, minter.mint("JOB"), b"flat")
        enqueue.enqueue(q, minter.mint("JOB"), b"lane", group=group)
        for claim in (claims.claim(q, LONG_MS), claims.claim_lane(q, LONG_MS) if self.serves_lanes else None):
            if claim is None:
                continue
            jobs.add_log(q, claim.job, b"working")
            if turn % 5 == 0:
                settle.retry(q, claim.job, claim.token, settle.Failure("again", delay_ms=60_000, max_attempts=9))
                jobs.remove(q, claim.job)
            else:
                jobs.remove(q, claim.job) if turn % 2 else settle.complete(q, claim.job, claim.token)
                q.server.write("UNLINK", q.keys.book(claim.job, "logs"))
            self.settled += 1

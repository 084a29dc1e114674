"""The batch consumer: one call of the handler works several jobs, and says of each what became of it."""

from __future__ import annotations

import inspect
import json
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from emq_ops.protocol.errors import BadInputError, EmqError
from emq_ops.protocol.queue import Queue, not_negative, positive
from emq_ops.worker.cancel import Cancelled
from emq_ops.worker.consumer import Consumer
from emq_ops.worker.events import Listener, Settled, Trouble, WorkerEvent
from emq_ops.worker.handlers import AsyncLoop, HandlerPool, ThreadEndedError
from emq_ops.worker.hands import Bench, Hands, HeldBatch
from emq_ops.worker.held_jobs import HeldJob
from emq_ops.worker.job import Job
from emq_ops.worker.settings import ConsumerSettings
from emq_ops.worker.verdicts import HandlerResult, batch_verdicts, failure_of

BatchHandler = Callable[[Sequence[Job]], Any]
"""Takes jobs; returns a mapping of their ids to verdicts (`verdicts.batch_verdict`). May be async."""
LARGEST = 10_000
POLL_SECONDS = 0.05
"""How often more jobs are looked for while a batch waits for them."""
_EVENTS = {"completed": "completed", "cancelled": "completed", "delayed": "delayed"}


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """How jobs are gathered. Raises BadInputError for a value that can't be."""

    size: int = 100
    """Jobs in a batch at most."""
    least: int = 1
    """So many are worked at once; fewer are waited with, for `wait`."""
    wait: int = 1_000
    """How long fewer than `least` are held back (ms)."""
    publish: bool = True
    """Publishes ``completed``, ``delayed`` or ``failed`` on the queue's channel for each job that was settled."""

    def __post_init__(self) -> None:
        if positive(self.size, "size") > LARGEST:
            raise BadInputError(f"size is {self.size}", fix=f"at most {LARGEST}")
        if positive(self.least, "least") > self.size:
            raise BadInputError(f"least is {self.least}, above the size of {self.size}", fix="at most the size")
        not_negative(self.wait, "wait")


class BatchConsumer(Consumer):
    """Works one queue in batches, up to ``settings.concurrency`` of them at once (1 unless given). See Consumer.

    A job that the handler leaves out, and one whose verdict is unknown, is retried; where the handler raises, or
    returns no mapping, all are. Each settlement has its own fencing token, and only what was settled is told.
    """

    def __init__(
        self,
        queue: Queue,
        handler: BatchHandler,
        settings: ConsumerSettings | None = None,
        *,
        batch: BatchSettings | None = None,
        on_event: Listener | None = None,
    ) -> None:
        self._batch = batch or BatchSettings()
        super().__init__(queue, handler, settings or ConsumerSettings(concurrency=1), on_event=on_event)

    def _make_hands(self, bench: Bench, handler: Callable[..., Any], size: int) -> Hands:
        return BatchHands(bench, handler, size, self._batch)


class BatchHands:
    """A thread a batch, at most `size`. One thread takes and begins, the pool's work."""

    def __init__(self, bench: Bench, handler: BatchHandler, size: int, settings: BatchSettings) -> None:
        self._bench = bench
        self._handler = handler
        self._size = size
        self._settings = settings
        self._gathered: list[HeldJob] = []
        self._running = 0
        self._lock = threading.Lock()
        self._async = AsyncLoop()
        self._pool: HandlerPool[HeldBatch] = HandlerPool(size, self._work, f"emq-batch-{bench.queue.name}")
        self._until = math.inf

    @property
    def due(self) -> float:
        return min(self._until, time.monotonic() + POLL_SECONDS) if self._gathered else math.inf

    @property
    def free(self) -> int:
        return self._settings.size - len(self._gathered) if self._running < self._size else 0

    def take(self, held: HeldJob) -> None:
        if not self._gathered:
            self._until = time.monotonic() + self._settings.wait / 1000
        self._gathered.append(held)

    def begin(self, asked: int, found: int) -> None:
        """Begins a batch that is full, or large enough with no more to come, or waited with for long enough."""
        count = len(self._gathered)
        enough = count >= self._settings.least and found < asked
        if count and (enough or count >= self._settings.size or time.monotonic() >= self._until):
            self.begin_all()

    def begin_all(self) -> None:
        if not self._gathered:
            return
        batch, self._gathered = HeldBatch(self._gathered), []
        with self._lock:
            self._running += 1
        self._pool.submit(batch)

    def tend(self) -> None:
        for batch in self._pool.ended():
            batch.thread = None
            batch.ended = True
            self._pool.submit(batch)

    def close(self) -> None:
        self._pool.close()
        self._async.stop()

    def _work(self, batch: HeldBatch) -> None:
        left: list[HeldJob] = []
        try:
            left = self._settle(batch, self._call(batch))
        finally:
            # Also where a fault of ours came in between: the leases lapse, and others take the jobs up.
            for held in batch.held:
                if held not in left:
                    self._bench.held.drop(held)
            with self._lock:
                self._running -= 1
            self._bench.done()

    def _call(self, batch: HeldBatch) -> dict[str, HandlerResult]:
        """The verdict of each job."""
        names = [held.claim.job for held in batch.held]
        if batch.ended:
            return dict.fromkeys(names, failure_of(ThreadEndedError("the handler ended its thread")))
        try:
            returned = self._handler([self._bench.job(held) for held in batch.held])
            if inspect.isawaitable(returned):
                returned = self._async.run(returned)
            return batch_verdicts(returned, names)
        except BaseException as fault:  # noqa: BLE001  # whatever a handler raises is its jobs' error, never our crash
            return dict.fromkeys(names, failure_of(fault))

    def _settle(self, batch: HeldBatch, verdicts: dict[str, HandlerResult]) -> list[HeldJob]:
        """Settles in the order of the claims; returns what could not be before the end."""
        told: list[Settled] = []

        def tell(event: WorkerEvent) -> None:
            if isinstance(event, Settled):
                told.append(event)
            self._bench.emit(event)

        # One that stopped since its lease is gone: nothing is to be settled.
        ours = [held for held in batch.held if not (held.token.lost and _stopped(verdicts[held.claim.job]))]
        pairs = [(held, verdicts[held.claim.job]) for held in ours]
        left = self._bench.settler.settle_all(pairs, tell)
        if self._settings.publish and told:
            self._publish(told)
        return left

    def _publish(self, told: list[Settled]) -> None:
        """Tells the queue's channel what was settled, as the reference does; at most once."""
        q = self._bench.queue
        events = [{"event": _EVENTS.get(one.outcome, "failed"), "job": one.job} for one in told]
        commands = [("PUBLISH", q.keys.events, json.dumps(event, separators=(",", ":"))) for event in events]
        try:
            faults = [reply for reply in q.server.write_each(commands) if isinstance(reply, EmqError)]
        except EmqError as lost:
            faults = [lost]
        if faults:
            self._bench.emit(Trouble(q.name, "publish events", faults[0], 0, 0))


def _stopped(verdict: HandlerResult) -> bool:
    return isinstance(verdict, Cancelled)

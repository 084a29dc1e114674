"""The threads that work what a consumer claimed, a job each, and what they need from it."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from emq_ops.protocol.native import CommandExecutor
from emq_ops.protocol.queue import Queue
from emq_ops.worker.events import Listener, Started
from emq_ops.worker.handlers import AsyncLoop, HandlerPool, ThreadEndedError, call
from emq_ops.worker.held_jobs import HeldJob, HeldJobs
from emq_ops.worker.job import Job
from emq_ops.worker.settle import Settler
from emq_ops.worker.verdicts import failure_of


@dataclass(frozen=True, slots=True)
class Bench:
    """What hands work with. `done`: called after each piece of work; `lose`: see `Settler`."""

    queue: Queue
    executor: CommandExecutor
    held: HeldJobs
    settler: Settler
    emit: Listener
    lose: Callable[[HeldJob, str], None]
    done: Callable[[], None]

    def job(self, held: HeldJob) -> Job:
        """Returns what the handler is given, and tells that it starts."""
        claim = held.claim
        self.emit(Started(self.queue.name, claim.job, claim.token, claim.group))
        return Job(self.queue, held, self.executor, self.lose)


class Hands(Protocol):
    """`free`: how many more jobs can be taken; `due`: when to look for more to those that were taken and are not
    begun yet, monotonic seconds."""

    @property
    def free(self) -> int: ...

    @property
    def due(self) -> float: ...

    def take(self, held: HeldJob) -> None:
        """Takes a job that is in hand."""

    def begin(self, asked: int, found: int) -> None:
        """`found` of `asked` jobs were there, and taken: works what is to be worked now."""

    def begin_all(self) -> None:
        """Works all that was taken: no more will come."""

    def tend(self) -> None:
        """Work whose handler ended its thread has failed; another thread says so."""

    def close(self) -> None:
        """Ends the threads that are not busy."""


class SingleHands:
    """A thread a job, at most `size`."""

    due = math.inf

    def __init__(self, bench: Bench, handler: Callable[[Job], Any], size: int) -> None:
        self._bench = bench
        self._handler = handler
        self._size = size
        self._async = AsyncLoop()
        self._pool: HandlerPool[HeldJob] = HandlerPool(size, self._work, f"emq-worker-{bench.queue.name}")

    @property
    def free(self) -> int:
        return self._size - len(self._bench.held)

    def take(self, held: HeldJob) -> None:
        self._pool.submit(held)

    def begin(self, asked: int, found: int) -> None:
        """Each was begun as it was taken."""

    def begin_all(self) -> None:
        """Each was begun as it was taken."""

    def tend(self) -> None:
        for held in self._pool.ended():
            held.thread = None
            held.ended = True
            self._pool.submit(held)

    def close(self) -> None:
        self._pool.close()
        self._async.stop()

    def _work(self, held: HeldJob) -> None:
        gone = True
        try:
            gone = self._handle(held)
        finally:
            # Also where a fault of ours came in between: the lease lapses, and another takes it up.
            if gone:
                self._bench.held.drop(held)
            self._bench.done()

    def _handle(self, held: HeldJob) -> bool:
        """Calls the handler and settles. False: it could not be settled before the end."""
        settle = self._bench.settler.settle
        if held.ended:
            return settle(held, failure_of(ThreadEndedError("the handler ended its thread")))
        verdict = call(self._handler, self._bench.job(held), held, self._async)
        return verdict is None or settle(held, verdict)


@dataclass(slots=True, eq=False)
class HeldBatch:
    """Jobs that one call of a handler works. `thread`, `ended`: as of a HeldJob."""

    held: list[HeldJob]
    ended: bool = False
    _thread: threading.Thread | None = None

    @property
    def thread(self) -> threading.Thread | None:
        return self._thread

    @thread.setter
    def thread(self, thread: threading.Thread | None) -> None:
        self._thread = thread
        for one in self.held:
            one.thread = thread

"""Threads for passes: one pool for what talks to the server alone, one for what may wait for a store, so that a hung
store never keeps a sweep waiting."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from emq_ops.passes.frame.frame import LeaseSource


class Leases(Protocol):
    """The leases of the queues of this process."""

    def ready(self, queue: str) -> bool:
        """Whether a run may begin: we lead the queue, and its server answers."""
        ...

    def lease_of(self, queue: str) -> LeaseSource:
        """The lease of a queue, as runs take it."""
        ...


@dataclass(frozen=True, slots=True)
class Sizes:
    """`threads`: for passes that talk to the server alone; `archive_threads`: for those that may wait for a store."""

    threads: int
    archive_threads: int
    backoff_ms: int


class ThreadPool:
    """`size` threads that run jobs in order. They do not keep the process alive."""

    def __init__(self, name: str, size: int) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._size = size
        self._busy = 0
        self._spent_s = 0.0
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}-{number}", daemon=True) for number in range(size)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, job: Callable[[], None]) -> None:
        """Runs `job` when a thread is free. It must not raise."""
        with self._lock:
            self._busy += 1
        self._jobs.put(job)

    @property
    def busy(self) -> int:
        """How many jobs wait or run."""
        with self._lock:
            return self._busy

    @property
    def spent_s(self) -> float:
        """Processor time of the jobs that ended, seconds."""
        with self._lock:
            return self._spent_s

    def drain(self, seconds: float) -> bool:
        """Waits until nothing waits or runs; False when the time ran out first."""
        until = time.monotonic() + seconds
        while self.busy:
            if time.monotonic() >= until:
                return False
            time.sleep(0.01)
        return True

    def stop(self) -> None:
        """Ends the threads once they are free."""
        for _ in self._threads:
            self._jobs.put(None)

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                return
            begun = time.thread_time()
            try:
                job()
            finally:
                with self._lock:
                    self._busy -= 1
                    self._spent_s += time.thread_time() - begun

"""The jobs in hand: claimed, and not settled yet."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field

from emq_ops.protocol.transitions.claims import Claim
from emq_ops.worker.cancel import LEASE_LOST, CancelToken

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def lease_clock() -> float:
    """Seconds of a clock that nobody sets and that goes on while the process, or the host, is frozen."""
    return time.clock_gettime(_CLOCK)


@dataclass(slots=True, eq=False)
class HeldJob:
    """One claim in hand. `safe_until` (lease clock): until then the lease stands for certain, since the server began to
    count it later than we did. `sign`: when it last gave a sign of life (`began`'s clock). `settling`: the handler is
    done, and its settlement is on the way. `thread`: the one that works it, once there is one; `ended`: its handler
    ended that thread."""

    claim: Claim
    safe_until: float
    token: CancelToken = field(default_factory=CancelToken)
    began: float = field(default_factory=time.monotonic)
    sign: float = field(default_factory=time.monotonic)
    settling: bool = False
    thread: threading.Thread | None = None
    ended: bool = False
    lost: bool = False

    @property
    def took_ms(self) -> int:
        return round((time.monotonic() - self.began) * 1000)


def is_running(thread: threading.Thread) -> bool:
    """Returns whether a thread lives, for the operating system too: one that a handler ended below Python's feet counts
    as alive with Python for ever."""
    if not thread.is_alive():
        return False
    tasks = f"/proc/self/task/{thread.native_id}"
    return os.path.exists(tasks) or not os.path.exists("/proc/self/task")


class HeldJobs:
    """Thread-safe. The same job may be here twice: a lease that lapsed, and a later claim."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, int], HeldJob] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._held)

    def add(self, held: HeldJob) -> None:
        with self._lock:
            self._held[held.claim.job, held.claim.token] = held

    def drop(self, held: HeldJob) -> None:
        with self._lock:
            self._held.pop((held.claim.job, held.claim.token), None)

    def all(self) -> list[HeldJob]:
        with self._lock:
            return list(self._held.values())

    def latest(self, job: str) -> HeldJob | None:
        """The latest claim of `job` that is in hand and not lost."""
        with self._lock:
            found = [held for (name, _), held in self._held.items() if name == job and not held.lost]
        return max(found, key=lambda held: held.claim.token, default=None)

    def lose(self, held: HeldJob) -> bool:
        """Its lease is gone: cancels its token. False where that was known."""
        with self._lock:
            known, held.lost = held.lost, True
        if not known:
            held.token.cancel(LEASE_LOST, lost=True)
        return not known

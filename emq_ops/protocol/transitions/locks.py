"""Marks that say "a worker holds this job": ``job:<id>:lock`` and the row's field ``lock``, which removals look at."""

from __future__ import annotations

import threading

from emq_ops.protocol.ids import job_id
from emq_ops.protocol.queue import Queue, positive
from emq_ops.protocol.server import Arg


class Locks:
    """The jobs that a keeper beside a worker of any make marks and keeps. Thread-safe. A `Consumer` has a keeper of its
    own and needs none.

    `lease_ms`: how long a lease stands; marks stand for twice that. `beat` belongs to every half of it.
    """

    def __init__(self, q: Queue, lease_ms: int) -> None:
        self._q = q
        self._lease_ms = positive(lease_ms, "lease_ms")
        self._held: dict[str, int] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._held)

    def track(self, job: str, token: int) -> bool:
        """Marks a job as held under its fencing token. False: there is no row, and nothing is tracked.

        Raises DamagedError for keys of another type, RightsError.
        """
        keys = self._keys(job)
        done = int(self._q.run("lock_track", keys, positive(token, "token"), 2 * self._lease_ms)) == 1
        if done:
            with self._lock:
                self._held[job] = token
        return done

    def untrack(self, job: str) -> bool:
        """Takes our marks off a job. False: it is not tracked here, and nothing changes."""
        keys = self._keys(job)
        with self._lock:
            token = self._held.pop(job, None)
        if token is None:
            return False
        self._q.run("lock_untrack", keys, token)
        return True

    def beat(self) -> list[str]:
        """Extends the leases of what is tracked and still in active under its token, and freshens its marks. Returns
        the jobs that were not, in the order of tracking; they stay tracked."""
        with self._lock:
            held = list(self._held.items())
        if not held:
            return []
        flat: list[Arg] = [value for pair in held for value in pair]
        lost = self._q.run("lock_beat", [self._q.keys.active], self._q.keys.base, self._lease_ms, *flat)
        return [job.decode("ascii") for job in lost]

    def _keys(self, job: str) -> list[str]:
        return [self._q.keys.row(job_id(job)), self._q.keys.book(job, "lock")]

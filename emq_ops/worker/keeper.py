"""The lease keeper: one thread that extends every lease in hand, in one call a beat."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from emq_ops.protocol.errors import EmqError
from emq_ops.protocol.native import CommandExecutor
from emq_ops.protocol.queue import Queue
from emq_ops.worker.events import Listener, Trouble
from emq_ops.worker.held_jobs import HeldJob, HeldJobs, is_running, lease_clock
from emq_ops.worker.retrying_task import patience
from emq_ops.worker.settings import ConsumerSettings

BEATS_A_LEASE = 3


class Keeper:
    """`lose` is called with each job whose lease is gone, and why. Without ``settings.keep`` it only notices."""

    def __init__(
        self,
        queue: Queue,
        settings: ConsumerSettings,
        held_jobs: HeldJobs,
        executor: CommandExecutor,
        emit: Listener,
        lose: Callable[[HeldJob, str], None],
    ) -> None:
        self._queue = queue
        self._held = held_jobs
        self._executor = executor
        self._lease = settings.lease
        self._emit = emit
        self._lose = lose
        self._extends = settings.keep
        self._failures = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"emq-keeper-{queue.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """No lease is extended after this."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(1)

    def _run(self) -> None:
        wait = self._lease / BEATS_A_LEASE
        while not self._ended.wait(wait / 1000):
            wait = self._beat()

    def _beat(self) -> float:
        """Extends what is in hand; returns the ms until the next beat."""
        pause = self._lease / BEATS_A_LEASE
        held = self._still_ours()
        if not held or not self._extends:
            return pause
        try:
            self.keep(held)
        except EmqError as fault:
            self._failures += 1
            wait = min(patience(fault).delay(self._failures), pause)
            self._emit(Trouble(self._queue.name, "keep leases", fault, round(wait), self._failures - 1))
            return wait
        self._failures = 0
        return pause

    def _still_ours(self) -> list[HeldJob]:
        """The leases that stand for certain. One that lapsed by our own clock, because the process was frozen or the
        server away for too long, is given up instead of being extended late: somebody may have the job by now."""
        now = lease_clock()
        kept = []
        for held in self._held.all():
            if held.lost or (held.thread is not None and not is_running(held.thread)):
                continue  # nobody works on it: its lease is left to lapse, unless the consumer settles it first
            if now < held.safe_until:
                kept.append(held)
            else:
                self._lose(held, "it could not be extended in time")
        return kept

    def stamp(self, held: Sequence[HeldJob]) -> None:
        """Extends fresh claims at once; a failure is reported, and left to the next beat."""
        try:
            self.keep(held)
        except EmqError as fault:
            self._emit(Trouble(self._queue.name, "stamp leases", fault, self._lease // BEATS_A_LEASE, 0))

    def keep(self, held: Sequence[HeldJob]) -> None:
        """Extends these leases. Raises EmqError."""
        sent = lease_clock()
        gone = set(self._executor.keep(self._queue, [(one.claim.job, one.claim.token) for one in held], self._lease))
        for one in held:
            if one.claim.job not in gone:
                one.safe_until = max(one.safe_until, sent + self._lease / 1000)
            elif not one.settling:  # else it left active because we settled it
                self._lose(one, "it lapsed and was collected, or the job was removed")

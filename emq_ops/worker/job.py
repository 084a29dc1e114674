"""What a handler is given."""

from __future__ import annotations

import time
from collections.abc import Callable

from emq_ops.protocol.errors import StaleTokenError
from emq_ops.protocol.native import CommandExecutor
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.transitions import flows, jobs
from emq_ops.protocol.transitions.leases import Extended
from emq_ops.worker.cancel import CancelToken
from emq_ops.worker.held_jobs import HeldJob, lease_clock


class LeaseLostError(StaleTokenError):
    """The job is not ours any more: its lease lapsed and was collected, or its row is gone. The handler should stop."""


class Job:
    """One claim of one job.

    `id`, `payload` (bytes), `attempts` (1 at the first; also the fencing token), `group` (its lane, or None), `queue`
    (the name), `claimed_ms` (server clock, unix ms), and `token`, which says whether the job was cancelled.
    """

    __slots__ = ("_executor", "_held", "_lose", "_queue", "attempts", "claimed_ms", "group", "id", "payload", "token")

    def __init__(
        self, queue: Queue, held: HeldJob, executor: CommandExecutor, lose: Callable[[HeldJob, str], None]
    ) -> None:
        claim = held.claim
        self.id: str = claim.job
        self.payload: bytes = claim.payload
        self.attempts: int = claim.token
        self.group: str | None = claim.group
        self.claimed_ms: int = claim.claimed_ms
        self.token: CancelToken = held.token
        self._queue = queue
        self._held = held
        self._executor = executor
        self._lose = lose

    def __repr__(self) -> str:
        return f"Job({self.id!r}, attempts={self.attempts})"

    @property
    def queue(self) -> str:
        return self._queue.name

    def extend(self, lease: int) -> None:
        """A checkpoint: the lease runs for `lease` ms from the server's now. The consumer's keeper never shortens it.

        Raises LeaseLostError where the job is not ours any more (and cancels `token`), UnreachableError and other
        EmqErrors where the server could not say.
        """
        sent = lease_clock()
        try:
            reply = self._executor.extend(self._queue, self.id, self.attempts, lease)
        except StaleTokenError as fault:
            self._lose(self._held, fault.what)
            raise LeaseLostError(fault.what, where=self.id, fix="stop: another claim holds the job") from fault
        if reply is not Extended.DONE:
            why = "its row is gone" if reply is Extended.NO_ROW else "its lease was collected"
            self._lose(self._held, why)
            raise LeaseLostError(
                f"EMQSTALE {why}", where=self.id, fix="stop: the job runs again elsewhere, or not at all"
            )
        self._held.safe_until = sent + lease / 1000
        self._sign()

    def progress(self, value: bytes | str) -> None:
        """Sets the job's progress and publishes it."""
        jobs.update_progress(self._queue, self.id, value)
        self._sign()

    def log(self, line: bytes | str, *, keep: int = 0) -> None:
        """Adds a line to the job's log, keeping the last `keep` (0: all)."""
        jobs.add_log(self._queue, self.id, line, keep=keep)
        self._sign()

    def children_values(self) -> dict[str, bytes]:
        """What the children of this flow parent returned, by child; a child that returned nothing gave its id. Raises
        what the server raises."""
        return flows.children_values(self._queue, self.id)

    def ignored_failures(self) -> dict[str, bytes]:
        """The errors of the children whose death this flow parent ignores, by child."""
        return flows.ignored_failures(self._queue, self.id)

    def _sign(self) -> None:
        self._held.sign = time.monotonic()

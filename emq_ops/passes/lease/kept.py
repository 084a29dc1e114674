"""Leases as runs take them: one of their own, kept by a thread; or one that somebody else keeps."""

from __future__ import annotations

import contextlib
import threading
from types import TracebackType

from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.lease.owner import ForeignQueueError, check_owner
from emq_ops.passes.lease.queue_lease import WAIT_SECONDS, QueueLease
from emq_ops.protocol.errors import EmqError
from emq_ops.protocol.fence import Fence
from emq_ops.protocol.server import Server


class KeptLease:
    """A queue's lease for the length of a ``with``: taken when first asked for, renewed by a thread, taken anew where
    it was lost, given up at the end."""

    def __init__(self, lease: QueueLease, wait_seconds: float = WAIT_SECONDS) -> None:
        self._lease, self._wait = lease, wait_seconds
        self._over = threading.Event()
        self._keeper: threading.Thread | None = None

    def hold(self) -> Fence:
        """Raises HeldQueueError, ForeignQueueError, and what server and ledger raise."""
        fence = self._lease.fence or self._lease.acquire(self._wait)
        if self._keeper is None:
            self._keeper = threading.Thread(target=self._keep, name=f"lease {self._lease.queue}", daemon=True)
            self._keeper.start()
        return fence

    def lost(self, fence: Fence) -> bool:
        """It is taken anew by the next `hold`."""
        self._lease.drop(fence)
        return True

    def _keep(self) -> None:
        while not self._over.wait(self._lease.lease_ms / 3000):
            if self._lease.fence is not None:
                with contextlib.suppress(EmqError):  # the server may be back in time; a lost one is noticed by its user
                    self._lease.renew()

    def __enter__(self) -> KeptLease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, where: TracebackType | None
    ) -> None:
        self._over.set()
        if self._keeper is not None:
            self._keeper.join()
        with contextlib.suppress(EmqError):  # it lapses by itself
            self._lease.release()


class GivenLease:
    """A lease that somebody else keeps."""

    def __init__(self, fence: Fence) -> None:
        self._fence = fence

    def hold(self) -> Fence:
        """The lease."""
        return self._fence

    def lost(self, _fence: Fence) -> bool:
        """There is no other."""
        return False


class NoLease:
    """For passes that take none: beside whoever leads the queue, as long as it is this state's. `sets`: the pass sets a
    field and touches no job, which may be done beside another state, too; `foreign`: that one, once the lease is held.
    """

    def __init__(self, server: Server, queue: str, ledger: Ledger, *, sets: bool = False) -> None:
        self._server, self._queue, self._ledger, self._sets = server, queue, ledger, sets
        self.foreign: ForeignQueueError | None = None

    def hold(self) -> None:
        """Raises ForeignQueueError."""
        try:
            check_owner(self._server, self._queue, self._ledger)
        except ForeignQueueError as other:
            if not self._sets:
                raise
            self.foreign = other

    def lost(self, _fence: Fence) -> bool:
        """There is none to lose."""
        return False

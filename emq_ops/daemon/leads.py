"""Which queues are ours: asking for leases, renewing them in a thread of their own, noticing a server that went."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterable

from emq_ops.daemon.events import EnoughLeases, QueueRefused, ServerBack, ServerLost
from emq_ops.ledger import interruptions
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.events import Emit
from emq_ops.passes.frame.frame import LeaseSource
from emq_ops.passes.lease.lease_set import LeaseSet
from emq_ops.passes.lease.owner import ForeignQueueError
from emq_ops.passes.lease.queue_lease import HeldQueueError
from emq_ops.protocol.errors import (
    DeadlineError,
    EmqError,
    FenceError,
    OutcomeUnknownError,
    ServerError,
    UnreachableError,
)
from emq_ops.protocol.fence import Fence
from emq_ops.protocol.server import Server

UNREACHABLE_SECONDS = 3.0
"""After so long a lease is asked for again whose server did not answer."""
SWITCH_SECONDS = 0.001
"""A renewal that waits for its turn among many threads waits several times so long a flush."""
KEPT_WITHIN = 1 / 6
"""Where a round of renewals takes longer than this share of the lease, no more leases are taken."""
TAKES_NO_WRITES = frozenset({"MISCONF", "NOREPLICAS", "READONLY"})
"""What a server answers to everybody's writes: as in any outage, no worker can renew the lease of its job."""


class Leads:
    """The leases of the daemon's queues. `ours`: the queues whose timetable this daemon keeps: those it leads, and
    those it led and nobody else has taken since (their server may just be away)."""

    def __init__(self, server: Server, ledger: Ledger, lease_ms: int, emit: Emit) -> None:
        self._leases = LeaseSet(server, ledger, lease_ms=lease_ms, emit=emit)
        self._ledger, self._emit, self._lease_ms = ledger, emit, lease_ms
        self.ours: set[str] = set()
        self._ask_again: dict[str, float] = {}
        self._away: dict[str, str] = {}
        self._slow: set[str] = set()
        self._refused: dict[str, str] = {}
        self._renewal_s = 0.0
        self._renewing_since: float | None = None
        self.others: set[str] = set()
        """Queues that another daemon leads, as of the last time that they were asked for."""
        self.left = 0
        """How many queues are left to others, since what is led takes the time there is."""
        self._over = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="leases", daemon=True)

    def start(self) -> None:
        """Begins to renew. From here on, a busy thread of this process makes way for another after a millisecond."""
        sys.setswitchinterval(SWITCH_SECONDS)
        self._keeper.start()

    def fence_of(self, queue: str) -> Fence | None:
        """The lease of a queue, None while we do not lead it."""
        return self._leases.fences.get(queue)

    def ready(self, queue: str) -> bool:
        """Whether a run may begin: we lead the queue, and its server answers."""
        return queue in self._leases.fences and not self.is_away(queue)

    def lease_of(self, queue: str) -> LeaseSource:
        """The lease of a queue, as runs take it: kept here, and asked for anew by the next round where it was lost."""
        return _Led(self, queue)

    def lost(self, fence: Fence) -> None:
        """A script was refused under this fence: nothing runs on the queue until there is another."""
        self._leases.drop(fence)

    def is_away(self, queue: str) -> bool:
        """Whether the queue's server does not answer (now, or in time), or takes no writes of ours."""
        return queue in self._away or queue in self._slow

    @property
    def faults(self) -> list[str]:
        """Why queues are away, each reason once."""
        return sorted(set(self._away.values()))

    @property
    def led(self) -> int:
        """How many queues we lead."""
        return len(self._leases.fences)

    @property
    def away(self) -> int:
        """How many queues' servers do not answer, or take no writes of ours."""
        return len(self._away)

    def ask(self, queues: Iterable[str], *, first: bool = False) -> bool:
        """Asks for the leases of `queues` that are not in hand; answers whether `ours` changed. On the `first` round a
        queue of another state is an error (ForeignQueueError): two states on one server are a mistake."""
        wanted = set(queues)
        before = set(self.ours)
        gone = [queue for queue in self._leases.fences if queue not in wanted]
        if gone:
            self._leases.release(gone)
        now, held = time.monotonic(), set(self._leases.fences)
        asked = {q for q in wanted if self._ask_again.get(q, 0.0) <= now}
        refused = self._leases.acquire(asked, self._keeps_up)
        self._tell_left(len(asked - refused.keys() - self._leases.fences.keys()))
        self._ask_again = {q: at for q, at in self._ask_again.items() if at > now}
        self.ours = (self.ours & wanted) | set(self._leases.fences)
        unheard = {q: str(f) for q, f in refused.items() if isinstance(f, UnreachableError | OutcomeUnknownError)}
        self._ask_again |= dict.fromkeys(unheard, now + UNREACHABLE_SECONDS)
        held_by_others = {queue for queue, fault in refused.items() if isinstance(fault, HeldQueueError)}
        self.others = (self.others & (wanted - asked)) | held_by_others
        answered = (refused.keys() - unheard.keys()) | (self._leases.fences.keys() - held)
        self._tell_unheard(unheard, answered | (set(self._away) - wanted))
        for queue, fault in refused.items():
            if isinstance(fault, ForeignQueueError) and first:
                self._leases.release()
                raise fault
            if isinstance(fault, HeldQueueError | ForeignQueueError):
                self.ours.discard(queue)
            if not isinstance(fault, HeldQueueError):
                self._refuse(queue, str(fault))
        for queue in self._leases.fences:
            self._refused.pop(queue, None)
        return self.ours != before

    def _tell_unheard(self, unheard: dict[str, str], others: set[str]) -> None:
        """A server that does not answer who asks for a lease is as far away as one that does not renew it. `others`:
        those of which that holds no more."""
        fresh = unheard.keys() - self._away.keys()
        self._away |= unheard
        if fresh:
            self._emit(ServerLost("*", queues=len(fresh), error=unheard[min(fresh)]))
        back = [queue for queue in others if self._away.pop(queue, None) is not None]
        if back:
            self._emit(ServerBack("*", queues=len(back)))

    def _keeps_up(self) -> bool:
        """Whether there is time to renew more than what is in hand."""
        begun, took = self._renewing_since, self._renewal_s
        running = 0.0 if begun is None else time.monotonic() - begun
        return max(took, running) < self._lease_ms * KEPT_WITHIN / 1000

    def _tell_left(self, count: int) -> None:
        """Said once, until nothing is left to others any more."""
        if count and not self.left:
            self._emit(EnoughLeases("*", queues=count))
        self.left = count

    def _refuse(self, queue: str, error: str) -> None:
        """Said once, until it is another reason."""
        if self._refused.get(queue) != error and queue not in self._away:
            self._refused[queue] = error
            self._emit(QueueRefused(queue, error=error))

    def _keep(self) -> None:
        third = self._lease_ms / 3000
        pause = third
        while not self._over.wait(pause):
            self._renewing_since = begun = time.monotonic()
            self._renew()
            self._renewal_s, self._renewing_since = time.monotonic() - begun, None
            # From beginning to beginning: a slow round leaves the next one the time that it had itself.
            pause = max(third / 10, third - self._renewal_s)

    def _renew(self) -> None:
        held = set(self._leases.fences)
        try:
            faults = self._leases.renew()
        except EmqError as fault:
            faults = dict.fromkeys(held, fault)
        gone = {q: f for q, f in faults.items() if isinstance(f, UnreachableError | OutcomeUnknownError | ServerError)}
        # Our own time running out once may be our own slowness; twice in a row the server does not answer.
        slow = {q: str(f) for q, f in gone.items() if isinstance(f, DeadlineError)}
        lost = {q: str(f) for q, f in gone.items() if q not in slow}
        lost |= {q: text for q, text in slow.items() if q in self._slow}
        self._slow = set(slow)
        fresh = [queue for queue in lost if queue not in self._away]
        back = [queue for queue in held if queue in self._away and queue not in lost and queue not in slow]
        if fresh:
            self._away.update({queue: lost[queue] for queue in fresh})
            self._emit(ServerLost("*", queues=len(fresh), error=lost[fresh[0]]))
            out = [queue for queue in fresh if _is_outage(gone[queue])]
            with contextlib.suppress(EmqError):  # the ledger may be away as well; the run id tells of a restart anyway
                interruptions.mark_lost(self._ledger, out)
        for queue in back:
            del self._away[queue]
        if back:
            self._emit(ServerBack("*", queues=len(back)))

    def refresh(self) -> None:
        """So that a copy of the state database is known as one. Raises what the ledger raises."""
        self._leases.refresh()

    def stop(self) -> None:
        """Ends the renewing; the leases stand until `release`."""
        self._over.set()
        if self._keeper.is_alive():
            self._keeper.join(self._lease_ms / 1000)

    def release(self) -> None:
        """Gives every lease up, as far as the server can be reached."""
        with contextlib.suppress(EmqError):
            self._leases.release()


class _Led:
    """One queue's lease among those of the daemon."""

    def __init__(self, leads: Leads, queue: str) -> None:
        self._leads, self._queue = leads, queue

    def hold(self) -> Fence:
        """Raises FenceError while we do not lead the queue."""
        fence = self._leads.fence_of(self._queue)
        if fence is None:
            raise FenceError("EMQFENCE we do not lead this queue", where=self._queue)
        return fence

    def lost(self, fence: Fence) -> bool:
        """It is dropped; another is not to be had at once."""
        self._leads.lost(fence)
        return False


def _is_outage(fault: EmqError) -> bool:
    """Whether workers are cut off as we are; a right that we lack is our own matter."""
    return not isinstance(fault, ServerError) or fault.code in TAKES_NO_WRITES

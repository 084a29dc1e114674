"""Leading many queues at once: what `QueueLease` does for one, with one flush and one transaction for all.

A daemon of 1,000 queues renews 1,000 leases three times in their length; one by one that would be its whole work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from emq_ops.database.statements import pages
from emq_ops.ledger import interruptions, tokens
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.ownership import Stamp, raise_stamp
from emq_ops.passes.events import Emit, LeaseLost, LeaseTaken, nowhere
from emq_ops.passes.lease.holder import DAEMON, Holder
from emq_ops.passes.lease.owner import LeaseInfo, foreign_queues, lease_infos
from emq_ops.passes.lease.queue_lease import LEASE_MS, HeldQueueError
from emq_ops.passes.lease.renewal import renew
from emq_ops.protocol.deadline import deadline, remaining
from emq_ops.protocol.errors import DeadlineError, EmqError, FenceError, OutcomeUnknownError
from emq_ops.protocol.fence import Fence
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Arg, Server

_TRIES = 3
_PAGE = 200
"""Leases asked for in one flush."""
_RENEWED = 2_000
"""Leases renewed in one flush: each flush waits for its turn among the process's threads, which may be long."""
RENEWAL_SHARE = 1 / 6
"""This share of the lease is what a node may take to renew: where it took too long, two more renewals come in time."""


def _always() -> bool:
    return True


class LeaseSet:
    """The leases of one process: `fences` are those in hand. One thread acquires and releases, another may renew."""

    def __init__(self, server: Server, ledger: Ledger, *, lease_ms: int = LEASE_MS, emit: Emit = nowhere) -> None:
        self.server, self.ledger, self.lease_ms, self.emit = server, ledger, lease_ms, emit
        self.me = Holder.me(DAEMON)
        self._seconds = lease_ms * RENEWAL_SHARE / 1000
        self._quick = server.hurried(self._seconds)
        self.fences: dict[str, Fence] = {}
        self._stamp = Stamp()

    def acquire(self, queues: Iterable[str], may_take: Callable[[], bool] = _always) -> dict[str, EmqError]:
        """Asks for the leases that are not in hand; answers why some were not given (HeldQueueError,
        ForeignQueueError, what the server raised). `may_take`: asked before each page; the rest is left where it says
        no. Raises what the ledger raises."""
        refused: dict[str, EmqError] = {}
        # Page by page: what is taken is renewed by then, however many are still to come.
        for page in pages([queue for queue in queues if queue not in self.fences], _PAGE):
            if not may_take():
                break
            wanted = list(page)
            for _ in range(_TRIES):
                if not wanted:
                    break
                wanted = self._ask(wanted, refused)
            for queue in wanted:
                refused[queue] = EmqError(
                    "the lease changed hands while we asked for it", where=queue, fix="it is asked for again"
                )
        return refused

    def refresh(self) -> None:
        """Raises the count of our database's life, which the next renewals write into the leases: so a copy of the
        database that was made meanwhile is known as one. Raises what the ledger raises."""
        with self.ledger.write() as connection:
            self._stamp = raise_stamp(self.ledger, connection)

    def renew(self) -> dict[str, EmqError]:
        """Renews every lease in hand; answers the faults. A lease that stands no more is in hand no more."""
        shards = self.server.shards(list(self.fences))
        if len(shards) < 2:
            return self._renew([queue for shard in shards for queue in shard])
        faults: dict[str, EmqError] = {}
        # Side by side: a node that hangs delays its own queues alone.
        with ThreadPoolExecutor(len(shards), "renewal") as pool:
            for found in pool.map(self._renew, shards):
                faults |= found
        return faults

    def drop(self, fence: Fence) -> None:
        """A script was refused under this fence: it is in hand no more, before a renewal finds out."""
        queue = fence.keys.queue
        if self.fences.get(queue) == fence:
            self.fences.pop(queue, None)
            self.emit(LeaseLost(queue, reason="a pass was fenced off"))

    def _renew(self, queues: Sequence[str]) -> dict[str, EmqError]:
        """The queues of one node, page by page: how many there are is no matter of time."""
        faults: dict[str, EmqError] = {}
        for page in pages(list(queues), _RENEWED):
            faults |= self._renew_page(page)
        return faults

    def _renew_page(self, queues: Sequence[str]) -> dict[str, EmqError]:
        """One that does not answer in time is a DeadlineError."""
        held = [(queue, fence) for queue in queues if (fence := self.fences.get(queue)) is not None]
        with deadline(self._seconds):
            found = renew(self._quick, [fence for _, fence in held], self.lease_ms, self._stamp.count or "")
            late = remaining() == 0.0
        faults: dict[str, EmqError] = {}
        for (queue, fence), reply in zip(held, found, strict=True):
            if reply is None:
                continue
            if late and isinstance(reply, OutcomeUnknownError):  # renewed or not, it is done again
                reply = DeadlineError("no answer in time", where=reply.where, fix=reply.fix)
            faults[queue] = reply
            if isinstance(reply, FenceError) and self.fences.get(queue) == fence:
                self.fences.pop(queue, None)
                self.emit(LeaseLost(queue, reason=reply.what))
        return faults

    def release(self, queues: Iterable[str] | None = None) -> None:
        """Gives leases up (all of them); those that can't be reached lapse by themselves."""
        names = list(self.fences) if queues is None else [queue for queue in queues if queue in self.fences]
        going = [self.fences.pop(queue) for queue in names]
        self.server.run_many(load("lease_release"), [([f.key], [f.state, f.token]) for f in going])

    def _ask(self, queues: Sequence[str], refused: dict[str, EmqError]) -> list[str]:
        """One round; returns what is to be asked again."""
        # Looked at first, so that whoever waits for a lease uses up no tokens.
        looked = lease_infos(self._quick, queues)
        leases = {queue: found for queue, found in looked.items() if isinstance(found, LeaseInfo)}
        refused |= {queue: found for queue, found in looked.items() if isinstance(found, EmqError)}
        refused |= foreign_queues(self.ledger, leases)
        dead: dict[str, str] = {}
        for queue, found in leases.items():
            if queue not in refused and found.stands and found.holder.nonce != self.me.nonce:
                if found.holder.surely_dead:
                    dead[queue] = str(found.token)
                else:
                    refused[queue] = HeldQueueError(queue, found.holder, found.left_ms)
        wanted = [queue for queue in queues if queue not in refused]
        return self._take(wanted, leases, dead, refused) if wanted else []

    def _take(
        self,
        queues: Sequence[str],
        leases: Mapping[str, LeaseInfo],
        dead: Mapping[str, str],
        refused: dict[str, EmqError],
    ) -> list[str]:
        """Asks for leases that were looked at; `dead`: the tokens of holders that are surely dead."""
        seen = {queue: leases[queue].token if queue in leases else 0 for queue in queues}
        given, self._stamp = tokens.next_tokens(self.ledger, seen)
        me, stamp = self.me, self._stamp
        holder = (me.role, me.host, me.machine, me.pid, me.start, me.nonce)
        calls: list[tuple[list[str], tuple[Arg, ...]]] = []
        for queue in queues:
            before = leases[queue].state if queue in leases else ""
            asked = (self.ledger.state, given[queue], self.lease_ms, *holder, dead.get(queue, ""), before)
            calls.append(([keys_of(queue).lease], (*asked, seen[queue] or "", stamp.db, stamp.life, stamp.count)))
        again: list[str] = []
        taken: dict[str, int] = {}
        for queue, reply in zip(queues, self._quick.run_many(load("lease_acquire"), calls), strict=True):
            if isinstance(reply, EmqError):
                refused[queue] = reply
            elif reply[0] == b"taken":
                self.fences[queue] = Fence(keys_of(queue), self.ledger.state, given[queue], reply[1].decode("ascii"))
                taken[queue] = seen[queue]
            else:
                again.append(queue)
        if taken:
            with self.ledger.write() as connection:
                interruptions.note_tokens(connection, {q: (given[q], before) for q, before in taken.items()})
        for queue in taken:
            self.emit(LeaseTaken(queue, token=given[queue], took_over=dead.get(queue)))
        return again

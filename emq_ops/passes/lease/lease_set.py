"""Leading many queues at once: what `QueueLease` does for one, with one flush and one transaction for all.

A daemon of 1,000 queues renews 1,000 leases three times in their length; one by one that would be its whole work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from emq_ops.ledger import interruptions as sights
from emq_ops.ledger import tokens
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.events import Emit, LeaseLost, LeaseTaken, nowhere
from emq_ops.passes.lease.holder import DAEMON, Holder
from emq_ops.passes.lease.queue_lease import LEASE_MS, ForeignQueueError, HeldQueueError, lease_info_of
from emq_ops.protocol.deadline import deadline
from emq_ops.protocol.errors import EmqError, FenceError
from emq_ops.protocol.fence import Fence
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Server

_TRIES = 3


@dataclass(slots=True)
class _Wish:
    """One queue that we ask for: the token of its lease as last seen, and of a holder known to be dead."""

    seen: int = 0
    dead: str = ""


class LeaseSet:
    """The leases of one process: `fences` are those in hand. One thread at a time acquires, renews and releases."""

    def __init__(self, server: Server, ledger: Ledger, *, lease_ms: int = LEASE_MS, emit: Emit = nowhere) -> None:
        self.server, self.ledger, self.lease_ms, self.emit = server, ledger, lease_ms, emit
        self.me = Holder.me(DAEMON)
        self._quick = server.hurried(lease_ms / 6000)
        self.fences: dict[str, Fence] = {}

    def acquire(self, queues: Iterable[str]) -> dict[str, EmqError]:
        """Asks for the leases that are not in hand; answers why some were not given (HeldQueueError,
        ForeignQueueError, what the server raised). Raises what the ledger raises."""
        wishes = {queue: _Wish() for queue in queues if queue not in self.fences}
        refused: dict[str, EmqError] = {}
        for _ in range(_TRIES):
            if not wishes:
                break
            wishes = self._ask(wishes, refused)
        for queue in wishes:
            refused[queue] = EmqError(
                "the lease changed hands while we asked for it", where=queue, fix="it is asked for again"
            )
        return refused

    def renew(self) -> dict[str, EmqError]:
        """Renews every lease in hand; answers the faults. A lease that stands no more is in hand no more."""
        shards = self.server.shards(self.fences)
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
        """The queues of one node, within a sixth of the lease."""
        held = [(queue, fence) for queue in queues if (fence := self.fences.get(queue)) is not None]
        calls = [([fence.key], (*fence.args, self.lease_ms)) for _, fence in held]
        with deadline(self.lease_ms / 6000):
            replies = self._quick.run_many(load("lease_renew"), calls)
        faults: dict[str, EmqError] = {}
        for (queue, fence), reply in zip(held, replies, strict=True):
            if not isinstance(reply, EmqError):
                continue
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

    def _ask(self, wishes: Mapping[str, _Wish], refused: dict[str, EmqError]) -> dict[str, _Wish]:
        """One round; answers what is to be asked again."""
        given = tokens.next_tokens(self.ledger, {queue: wish.seen for queue, wish in wishes.items()})
        me = self.me
        holder = (me.role, me.host, me.machine, me.pid, me.start, me.nonce)
        calls = [
            ([keys_of(q).lease], (self.ledger.state, given[q], self.lease_ms, *holder, wish.dead, ""))
            for q, wish in wishes.items()
        ]
        again: dict[str, _Wish] = {}
        taken: dict[str, int] = {}
        for (queue, wish), reply in zip(
            wishes.items(), self._quick.run_many(load("lease_acquire"), calls), strict=True
        ):
            if isinstance(reply, EmqError):
                refused[queue] = reply
                continue
            if reply[0] == b"taken":
                self.fences[queue] = Fence(keys_of(queue), self.ledger.state, given[queue], reply[1].decode("ascii"))
                taken[queue] = int(reply[2]) if reply[2].isdigit() else 0
                self.emit(LeaseTaken(queue, token=given[queue], took_over=wish.dead or None))
                continue
            found = lease_info_of(reply[2], int(reply[1]))
            if reply[0] == b"foreign":
                refused[queue] = ForeignQueueError(queue, self.ledger.state, found.state, found.holder)
            elif reply[0] == b"held" and (not found.holder.surely_dead or wish.dead):
                refused[queue] = HeldQueueError(queue, found.holder, max(0, found.until_ms - found.now_ms))
            else:
                again[queue] = _Wish(found.token, str(found.token) if reply[0] == b"held" else wish.dead)
        if taken:
            with self.ledger.write() as connection:
                for queue, before in sorted(taken.items()):  # in one order everywhere
                    sights.note_token(connection, queue, given[queue], before)
        return again

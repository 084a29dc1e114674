"""Leading a queue: one holder at a time, by the server's clock, with a token that never repeats.

The lease lies on the queue's own slot (``lua/lib/fence.lua``). Whoever leads hands its `Fence` to passes; their scripts
check it in the same step as they write.
"""

from __future__ import annotations

import time

from emq_ops.ledger import interruptions, tokens
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.events import Emit, LeaseLost, LeaseTaken, nowhere
from emq_ops.passes.lease.holder import Holder
from emq_ops.passes.lease.owner import LeaseInfo, foreign_queues, lease_info
from emq_ops.passes.lease.renewal import renew
from emq_ops.protocol.errors import EmqError, FenceError, OutcomeUnknownError
from emq_ops.protocol.fence import Fence
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Server

LEASE_MS = 15_000
"""How long a lease stands without being renewed; it is renewed three times in it."""
WAIT_SECONDS = 10.0
_POLL_SECONDS = 0.2
_TOKEN_TRIES = 5


class HeldQueueError(EmqError):
    """Another process leads the queue. `holder`: who; `for_ms`: how long its lease still stands without a renewal."""

    def __init__(self, queue: str, holder: Holder, for_ms: int) -> None:
        super().__init__(
            f"the {holder.role or 'process'} {holder} leads this queue, for another {for_ms} ms at the least",
            where=queue,
            fix="wait for it, end it, or ask it to run the pass",
        )
        self.holder, self.for_ms = holder, for_ms


class QueueLease:
    """One holder's lease of one queue. Used by one thread, or kept by one background thread (`kept`)."""

    def __init__(
        self,
        server: Server,
        ledger: Ledger,
        queue: str,
        *,
        role: str = "command",
        lease_ms: int = LEASE_MS,
        emit: Emit = nowhere,
    ) -> None:
        self.server, self.ledger, self.lease_ms, self.emit = server, ledger, lease_ms, emit
        self.keys = keys_of(queue)
        self.queue = self.keys.queue
        self.me = Holder.me(role)
        self.fence: Fence | None = None

    def try_acquire(self, *, disown: str = "") -> Fence:
        """Takes the lease if it is free, ours, expired, or of a dead process of this machine.

        `disown`: the UUID of a state whose lease may be replaced where it does not stand any more. Raises
        HeldQueueError, ForeignQueueError, and what server and ledger raise.
        """
        lost: OutcomeUnknownError | None = None
        for _ in range(_TOKEN_TRIES):
            # Looked at first, so that whoever waits for a lease uses up no tokens.
            found = lease_info(self.server, self.queue)
            dead_token = ""
            if found is not None:
                self._check(found, disown)
                if found.stands and found.holder.nonce != self.me.nonce:
                    if not found.holder.surely_dead:
                        raise HeldQueueError(self.queue, found.holder, found.left_ms)
                    dead_token = str(found.token)
            seen = found.token if found is not None else 0
            before = found.state if found is not None else ""  # ours, or one that may be replaced
            given, stamp = tokens.next_tokens(self.ledger, {self.queue: seen})
            me = self.me
            holder = (me.role, me.host, me.machine, me.pid, me.start, me.nonce)
            ours = (self.ledger.state, given[self.queue], self.lease_ms, *holder, dead_token, before)
            args = (*ours, seen or "", stamp.db, stamp.life, stamp.count)
            try:
                reply = self.server.run(load("lease_acquire"), [self.keys.lease], args)
            except OutcomeUnknownError as fault:
                # If it was taken, it is ours by the nonce, and a higher token takes it again.
                lost = fault
                continue
            if reply[0] == b"taken":
                return self._taken(given[self.queue], reply[1].decode("ascii"), seen, dead_token)
        if lost is not None:
            raise lost
        raise EmqError("the lease changed hands too often while we asked for it", where=self.queue, fix="try again")

    def _check(self, found: LeaseInfo, disown: str) -> None:
        """Raises ForeignQueueError for a lease that this database may not replace."""
        fault = foreign_queues(self.ledger, {self.queue: found}).get(self.queue)
        if fault is not None and (found.stands or found.state != disown):
            raise fault

    def acquire(self, wait_seconds: float = WAIT_SECONDS) -> Fence:
        """As `try_acquire`, waiting for a holder to give it up or to lapse."""
        until = time.monotonic() + wait_seconds
        while True:
            try:
                return self.try_acquire()
            except HeldQueueError:
                left = until - time.monotonic()
                if left <= 0:
                    raise
            time.sleep(min(_POLL_SECONDS, left))

    def renew(self) -> Fence:
        """Renews the lease; raises FenceError where it stands no more."""
        fence = self._own()
        [fault] = renew(self.server, [fence], self.lease_ms)
        if isinstance(fault, FenceError):
            self.drop(fence)
            self.emit(LeaseLost(self.queue, reason=fault.what))
        if fault is not None:
            raise fault
        return fence

    def release(self) -> None:
        """Gives the lease up, if it is still ours."""
        fence, self.fence = self.fence, None
        if fence is not None:
            self.server.run(load("lease_release"), [fence.key], [fence.state, fence.token])

    def drop(self, fence: Fence) -> None:
        """A script was refused under `fence`: it is in hand no more, unless another was taken meanwhile."""
        if self.fence is fence:
            self.fence = None

    def _own(self) -> Fence:
        if self.fence is None:
            raise FenceError("EMQFENCE we do not lead this queue", where=self.queue)
        return self.fence

    def _taken(self, token: int, run: str, before: int, dead_token: str) -> Fence:
        self.fence = Fence(self.keys, self.ledger.state, token, run)
        with self.ledger.write() as connection:
            # A server that has a lower token than it had went back in time; the next look says since when.
            interruptions.note_tokens(connection, {self.queue: (token, before)})
        self.emit(LeaseTaken(self.queue, token=token, took_over=dead_token or None))
        return self.fence

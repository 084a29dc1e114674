"""Leading a queue: one holder at a time, by the server's clock, with a token that never repeats.

The lease lies on the queue's own slot (``lua/lib/fence.lua``). Whoever leads hands its `Fence` to passes; their scripts
check it in the same step as they write.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from emq_ops.ledger import interruptions as sights
from emq_ops.ledger import tokens
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.events import Emit, LeaseLost, LeaseTaken, nowhere
from emq_ops.passes.lease.holder import Holder
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


class ForeignQueueError(EmqError):
    """Another state owns the queue. `state`: its UUID; `holder`: who held the lease last."""

    def __init__(self, queue: str, ours: str, state: str, holder: Holder) -> None:
        super().__init__(
            f"the queue belongs to state {state} (last held by {holder}); ours is {ours}",
            where=queue,
            fix=f"use that state's database, or, if it is lost: emq-ops release {queue} --disown {state}",
        )
        self.state, self.holder = state, holder


@dataclass(frozen=True, slots=True)
class LeaseInfo:
    """A lease as it was found. `until_ms` 0: given up. `now_ms`: the server's clock then."""

    state: str
    token: int
    run: str
    until_ms: int
    length_ms: int
    now_ms: int
    holder: Holder

    @property
    def stands(self) -> bool:
        """Whether it is in force: not given up, not run out."""
        return self.now_ms < self.until_ms <= self.now_ms + self.length_ms


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0


def lease_info_of(flat: Sequence[bytes], now_ms: int) -> LeaseInfo:
    """A lease from its fields (name, value ...) and the server's clock (unix ms)."""
    texts = [value.decode("utf-8", "replace") for value in flat]
    f = dict(zip(texts[::2], texts[1::2], strict=True))
    holder = Holder(
        f.get("role", ""),
        f.get("host", ""),
        f.get("machine", ""),
        _number(f.get("pid", "")),
        f.get("start", ""),
        f.get("nonce", ""),
    )
    until, length = _number(f.get("until", "")), _number(f.get("ms", ""))
    return LeaseInfo(f.get("state", ""), _number(f.get("token", "")), f.get("run", ""), until, length, now_ms, holder)


def lease_info(server: Server, queue: str) -> LeaseInfo | None:
    """The lease of a queue as it stands, None where nobody ever took it."""
    now = server.now_ms(queue)
    flat = server.read("HGETALL", keys_of(queue).lease)
    return lease_info_of(flat, now) if flat else None


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
        seen, dead_token = 0, ""
        found = lease_info(self.server, self.queue)
        if found is not None:
            # Looked at first, so that whoever waits for a lease uses up no tokens.
            seen = found.token
            if found.state not in ("", self.ledger.state):
                if found.stands or found.state != disown:
                    raise ForeignQueueError(self.queue, self.ledger.state, found.state, found.holder)
            elif found.stands and found.holder.nonce != self.me.nonce:
                dead_token = self._past(found)
        for _ in range(_TOKEN_TRIES):
            token = tokens.next_token(self.ledger, self.queue, seen)
            token, reply = self._ask(token, dead_token, disown)
            if reply[0] == b"taken":
                return self._taken(token, reply[1].decode("ascii"), _number(reply[2].decode("ascii")), dead_token)
            found = lease_info_of(reply[2], int(reply[1]))
            if reply[0] == b"foreign":
                raise ForeignQueueError(self.queue, self.ledger.state, found.state, found.holder)
            if reply[0] == b"held":
                dead_token = self._past(found)
            seen = found.token
        raise EmqError("the lease changed hands too often while we asked for it", where=self.queue, fix="try again")

    def _past(self, found: LeaseInfo) -> str:
        """The token of a holder that is surely dead; raises HeldQueueError for any other."""
        if not found.holder.surely_dead:
            raise HeldQueueError(self.queue, found.holder, max(0, found.until_ms - found.now_ms))
        return str(found.token)

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
        try:
            self.server.run(load("lease_renew"), [fence.key], [*fence.args, self.lease_ms])
        except FenceError as fault:
            self.drop(fence)
            self.emit(LeaseLost(self.queue, reason=fault.what))
            raise
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

    def _ask(self, token: int, dead_token: str, disown: str) -> tuple[int, Any]:
        me = self.me
        holder = (me.role, me.host, me.machine, me.pid, me.start, me.nonce)
        for last in (False, True):
            args = (self.ledger.state, token, self.lease_ms, *holder, dead_token, disown)
            try:
                return token, self.server.run(load("lease_acquire"), [self.keys.lease], args)
            except OutcomeUnknownError:
                # If it was taken, it is ours by the nonce, and a higher token takes it again.
                if last:
                    raise
                token = tokens.next_token(self.ledger, self.queue, token)
        raise AssertionError("unreachable")

    def _taken(self, token: int, run: str, before: int, dead_token: str) -> Fence:
        self.fence = Fence(self.keys, self.ledger.state, token, run)
        with self.ledger.write() as connection:
            # A server that has a lower token than it had went back in time; the next look says since when.
            sights.note_token(connection, self.queue, token, before)
        self.emit(LeaseTaken(self.queue, token=token, took_over=dead_token or None))
        return self.fence

"""Whose a queue is: its lease as it stands, and whether this database may lead it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.ownership import Lineage, Stamp, note_older
from emq_ops.passes.lease.holder import Holder
from emq_ops.protocol.errors import EmqError
from emq_ops.protocol.key_names import queue_of_lease
from emq_ops.protocol.keyspace import EVERY_LEASE, keys_of
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Arg, Server


class ForeignQueueError(EmqError):
    """Another state owns the queue, or another database of this one. `state`: its UUID; `holder`: who held the lease
    last."""

    def __init__(self, queue: str, ours: str, state: str, holder: Holder) -> None:
        if state == ours:
            what = (
                f"another database of this state led the queue since (last held by {holder}): "
                f"this one is a copy of it, or an older backup (state {state})"
            )
        else:
            what = f"the queue belongs to state {state} (last held by {holder}); ours is {ours}"
        fix = f"work there, with its database; if that is gone for good: emq-ops state take-over {state}"
        super().__init__(what, where=queue, fix=fix)
        self.state, self.holder = state, holder


@dataclass(frozen=True, slots=True)
class LeaseInfo:
    """A lease as it was found. `until_ms` 0: given up. `now_ms`: the server's clock then. `stamp`: which database took
    it."""

    state: str
    token: int
    run: str
    until_ms: int
    length_ms: int
    now_ms: int
    holder: Holder
    stamp: Stamp

    @property
    def stands(self) -> bool:
        """Whether it is in force: not given up, not run out."""
        return self.now_ms < self.until_ms <= self.now_ms + self.length_ms

    @property
    def left_ms(self) -> int:
        """How long it still stands without a renewal."""
        return max(0, self.until_ms - self.now_ms) if self.stands else 0


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
    stamp = Stamp(f.get("db", ""), f.get("life", ""), _number(f.get("count", "")))
    return LeaseInfo(
        f.get("state", ""), _number(f.get("token", "")), f.get("run", ""), until, length, now_ms, holder, stamp
    )


def lease_info(server: Server, queue: str) -> LeaseInfo | None:
    """The lease of a queue as it stands, None where nobody ever took it."""
    now, flat = server.run(load("lease_look"), [keys_of(queue).lease], [], readonly=True)
    return _found(flat, now)


def lease_infos(server: Server, queues: Sequence[str]) -> dict[str, LeaseInfo | EmqError | None]:
    """The leases of many queues, in one flush; the error where one could not be read."""
    calls: list[tuple[list[str], list[Arg]]] = [([keys_of(queue).lease], []) for queue in queues]
    replies = server.run_many(load("lease_look"), calls, readonly=True)
    return {
        queue: reply if isinstance(reply, EmqError) else _found(reply[1], reply[0])
        for queue, reply in zip(queues, replies, strict=True)
    }


def led_queues(server: Server) -> list[str]:
    """The queues that somebody ever took a lease of, whether they have a key of EchoMQ's or not."""
    return sorted({queue for key in server.scan(EVERY_LEASE) if (queue := queue_of_lease(key)) is not None})


def _found(flat: Sequence[bytes], now_ms: int) -> LeaseInfo | None:
    return lease_info_of(flat, now_ms) if any(flat[1::2]) else None


def foreign_queues(ledger: Ledger, leases: Mapping[str, LeaseInfo]) -> dict[str, ForeignQueueError]:
    """Those of the queues that this database may not lead, with the reason. A proof that it is older than another of
    its state is kept, and then it may lead none."""
    lineage = Lineage(ledger)
    out: dict[str, ForeignQueueError] = {}
    for queue, lease in leases.items():
        mine = not lease.state or (lease.state in lineage.states and lineage.knows(lease.stamp))
        if mine and lineage.older is None:
            continue
        if lineage.older is None and lease.state == ledger.state and lineage.is_older(lease.stamp):
            note_older(ledger, queue, str(lease.holder))
        out[queue] = ForeignQueueError(queue, ledger.state, lease.state or ledger.state, lease.holder)
    return out


def check_owner(server: Server, queue: str, ledger: Ledger) -> None:
    """Raises ForeignQueueError where another state, or another database of ours, owns the queue: our ledger would not
    know what is done, and its owner would not know of our word."""
    found = lease_info(server, queue)
    if found is not None:
        for fault in foreign_queues(ledger, {queue: found}).values():
            raise fault

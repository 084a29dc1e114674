"""Taking over what belongs to a state whose database is gone: by an operator's word only, never while it is led."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from emq_ops.ledger import ownership, tokens
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.events import Emit, nowhere
from emq_ops.passes.lease.owner import LeaseInfo, foreign_queues, lease_infos, led_queues
from emq_ops.passes.lease.queue_lease import HeldQueueError, QueueLease
from emq_ops.protocol.errors import EmqError
from emq_ops.protocol.server import Server


@dataclass(slots=True)
class Estate:
    """The queues whose leases one state, or another database of ours, holds or held last."""

    state: str
    leases: dict[str, LeaseInfo] = field(default_factory=dict)

    @property
    def holder(self) -> str:
        """Who held one of them last."""
        newest = max(self.leases.values(), key=lambda lease: lease.until_ms, default=None)
        return str(newest.holder) if newest is not None else ""

    def check(self) -> None:
        """Raises HeldQueueError while a process of that database leads a queue."""
        for queue, lease in sorted(self.leases.items()):
            if lease.stands and not lease.holder.surely_dead:
                raise HeldQueueError(queue, lease.holder, lease.left_ms)


def estates(server: Server, ledger: Ledger) -> dict[str, Estate]:
    """State -> what its database leads or led and ours may not. Raises what the server raises."""
    leases: dict[str, LeaseInfo] = {}
    for queue, found in lease_infos(server, led_queues(server)).items():
        if isinstance(found, EmqError):
            raise found
        if found is not None:
            leases[queue] = found
    out: dict[str, Estate] = {}
    for queue, fault in foreign_queues(ledger, leases).items():
        out.setdefault(fault.state, Estate(fault.state)).leases[queue] = leases[queue]
    return out


def take_over(
    server: Server, ledger: Ledger, estate: Estate, floors: Mapping[str, int], emit: Emit = nowhere
) -> dict[str, int]:
    """Makes `ledger` the database of the estate's state, and every lease of it ours; returns each queue's new token,
    above `floors` (queue -> the token of its archives' logs). Killed anywhere, it is run again to the same end.

    Raises HeldQueueError, and what server and ledger raise.
    """
    estate.check()
    ownership.become(ledger, estate.state)
    for queue, floor in sorted(floors.items()):
        tokens.raise_to(ledger, queue, floor)
    taken: dict[str, int] = {}
    for queue in sorted(estate.leases):
        lease = QueueLease(server, ledger, queue, emit=emit)
        taken[queue] = lease.try_acquire(disown=estate.state).token
        lease.release()
    return taken

"""The archive that a trim writes to; a module of its own, since a trim without one need not import it."""

from __future__ import annotations

from emq_archive.model import Writer
from emq_archive.write.dead import DeadArchive
from emq_archive.write.pace import BURST, Allowance
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.ownership import states_of
from emq_ops.passes.archive.stream import archiving
from emq_ops.passes.frame.stores import Stores
from emq_ops.passes.lease.holder import who
from emq_ops.passes.trim.archiver import DeadArchiver
from emq_ops.policy.models import DeadPolicy
from emq_ops.protocol.fence import Fence
from emq_ops.protocol.queue import Queue


def archiver(
    stores: Stores, q: Queue, policy: DeadPolicy, fence: Fence, ledger: Ledger, *, paced: bool
) -> DeadArchiver:
    """The archive of the queue's dead jobs, written under `fence`; `paced`: trims of a few jobs share segments. Raises
    BadInputError where none is configured."""
    writer = Writer(fence.state, fence.token, who(), states_of(ledger))
    archived = archiving(policy.archiving)
    ships = stores.paces.setdefault(q.name, Allowance(BURST, archived.ship_after_ms)) if paced else None
    return DeadArchive(q, stores.local(), stores.remote(), archived, writer, ships)

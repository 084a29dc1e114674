"""The archive that a trim writes to; a module of its own, since a trim without one need not import it."""

from __future__ import annotations

from emq_archive.model import Writer
from emq_archive.write.dead import DeadArchive
from emq_ops.ledger.ownership import states_of
from emq_ops.passes.archive.stream import archiving
from emq_ops.passes.frame.context import Context
from emq_ops.passes.lease.holder import who
from emq_ops.passes.trim.archiver import DeadArchiver
from emq_ops.protocol.queue import Queue


def archiver(context: Context) -> DeadArchiver:
    """The archive of the queue's dead jobs, written under the run's lease. Raises BadInputError where none is
    configured."""
    fence, stores = context.begin(), context.services.stores
    writer = Writer(fence.state, fence.token, who(), states_of(context.ledger))
    policy = archiving(context.policy.archiving)
    return DeadArchive(Queue(context.server, context.queue), stores.local(), stores.remote(), policy, writer)

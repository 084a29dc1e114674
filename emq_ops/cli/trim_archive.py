"""The archive that a trim writes to; a module of its own, since a trim without one need not import it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from emq_archive.model import Writer
from emq_archive.write.dead import DeadArchive
from emq_ops.cli.context import CommandContext
from emq_ops.passes.archive.stream import archiving
from emq_ops.passes.lease.holder import who
from emq_ops.policy.models import DeadPolicy
from emq_ops.protocol.fence import Fence
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server


def archiver(
    context: CommandContext, policy: DeadPolicy, server: Server, queue: str, stack: contextlib.ExitStack
) -> Callable[[Fence], DeadArchive]:
    """Makes the archive of a queue's dead jobs, once it is known who writes. Raises BadInputError where no archive is
    configured."""
    local = stack.enter_context(context.local())
    remote = stack.enter_context(context.remote())

    def make(fence: Fence) -> DeadArchive:
        writer = Writer(fence.state, fence.token, who())
        return DeadArchive(Queue(server, queue), local, remote, archiving(policy.archiving), writer)

    return make

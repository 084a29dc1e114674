"""What passes have in common whose work is told by a look at the queue."""

from __future__ import annotations

from typing import Any

from emq_ops.passes.frame.contract import Work
from emq_ops.passes.frame.order import Glance
from emq_ops.passes.observe.queue_state import QueueState, keys_to_observe, queue_state
from emq_ops.protocol.keyspace import keys_of


class QueueWork(Work):
    """A pass that starts from a `QueueState`."""

    def glance(self, queue: str, target: str) -> Glance:
        """A look at the queue."""
        return Glance("look", tuple(keys_to_observe(keys_of(queue))), lambda reply: queue_state(queue, reply))

    def rest(self, before: QueueState | None, report: Any, policy: Any) -> QueueState | None:
        """How the queue stood, where the run did all there was to do."""
        return before if report.status == "done" and not report.more else None

"""Parents in other queues hear what became of their children, as the outbox of the children's queue has it."""

from __future__ import annotations

from emq_ops.passes.frame.context import Context
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.transitions import flows

BATCH = 100


def deliver(context: Context) -> None:
    """Takes the outbox empty, up to the policy's limit. It needs no lease: an entry goes, by value, once its parent has
    heard, and a parent that hears twice has heard once."""
    q, report, limit = Queue(context.server, context.queue), context.report, context.policy.limit
    done = 0
    while limit is None or done < limit:
        if context.budget.up:
            report.more = True
            return
        batch = BATCH if limit is None else min(BATCH, limit - done)
        told = flows.deliver(q, batch)
        report.delivered += told.delivered
        report.undeliverable += len(told.aside)
        done += told.seen
        if told.seen < batch:
            return

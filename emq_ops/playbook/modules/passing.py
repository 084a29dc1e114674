"""What the modules that run passes share: one way through the frame, and how its report ends a task."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from emq_ops.passes.frame.contract import Order, Pass, Prediction
from emq_ops.passes.frame.frame import predict_pass
from emq_ops.passes.frame.once import run_once
from emq_ops.playbook.context import TaskContext
from emq_ops.playbook.errors import TaskFailure

NAMED = 1000


def with_options(policy: Any, options: dict[str, Any], names: dict[str, str]) -> Any:
    """`policy` with the options that were given over it; `names`: option -> field."""
    given = {field: options[name] for name, field in names.items() if options[name] is not None}
    return replace(policy, **given) if given else policy


def order_of(ctx: TaskContext, policy: Any, target: str = "", **more: Any) -> Order:
    """What a play asks for: bounds of its own, unless `more` says otherwise."""
    lease_ms = ctx.policy.stalled.lease_ms
    made = Order(ctx.queue.name, policy, target, "playbook", applied=False, force=True, lease_ms=lease_ms)
    return replace(made, **more)


def foretell(ctx: TaskContext, what: Pass, order: Order) -> Prediction:
    """What a run would do now. Changes nothing."""
    return predict_pass(ctx.ops.services, what, order)


def carry_out(ctx: TaskContext, what: Pass, order: Order) -> dict[str, Any]:
    """Runs the pass under the queue's lease, or through a live daemon. Raises TaskFailure for one that was held,
    stopped by a guard, or ran out of time."""
    row = run_once(ctx.ops.services, what, order)
    queue, why = order.queue, "; ".join([*row["notes"], *row.get("refused", ())])
    if row["status"] == "held":
        raise TaskFailure(f"the queue is held: {why}", where=queue, fix="emq-ops release")
    if row["status"] == "stopped":
        raise TaskFailure(f"stopped by {row['stopped_by']}: {why}", where=queue)
    if row["more"]:
        raise TaskFailure("the time ran out with work left", where=queue, fix="run it again")
    return row

"""What the modules that run passes share: one way through the frame, and how its report ends a task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from emq_ops.passes.frame.contract import Pass
from emq_ops.passes.frame.frame import predict_pass
from emq_ops.passes.frame.once import run_once
from emq_ops.passes.frame.order import Order, Prediction
from emq_ops.playbook.context import TaskContext
from emq_ops.playbook.decisions import CHANGE, SAME, Decision, Result
from emq_ops.playbook.errors import TaskFailure
from emq_ops.playbook.foretold import ALL_SETS, PENDING, SCHEDULED
from emq_ops.playbook.options import Option
from emq_ops.playbook.registry import Module
from emq_ops.policy.kinds import FieldType
from emq_ops.policy.options import keys
from emq_ops.policy.schedule import Schedule

NAMED = 1000
_TIMED = keys(Schedule).keys()


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


def carry_out(ctx: TaskContext, what: Pass, order: Order, does: Sequence[str]) -> dict[str, Any]:
    """Runs the pass under the queue's lease, or through a live daemon. `does`: those of the report's numbers that say
    how much it did. Raises TaskFailure for one that was held, stopped by a guard, or ran out of time; what it did
    before that is told, as before any other fault."""

    def tell(done: dict[str, Any]) -> None:
        returns = {name: int(done[name]) for name in does}
        ids = [job for name in does for job in done.get(f"{name}_jobs", ())]
        ctx.part.append(Result(any(returns.values()), sum(returns.values()), ids[:NAMED], returns=returns))

    row = run_once(ctx.ops.services, what, replace(order, failed=lambda report: tell(report.as_row())))
    tell(row)
    queue, why = order.queue, "; ".join([*row["notes"], *row.get("refused", ())])
    if row["status"] == "held":
        raise TaskFailure(f"the queue is held: {why}", where=queue, fix="emq-ops release")
    if row["status"] == "stopped":
        raise TaskFailure(f"stopped by {row['stopped_by']}: {why}", where=queue)
    if row["more"]:
        raise TaskFailure("the time ran out with work left", where=queue, fix="run it again")
    return row


class PassModule(Module):
    """A pass of the registry that has no module of its own: its policy's fields are the options."""

    check = "would change (how many, the first of which), or would not; exact for that moment"
    reads = moves = ALL_SETS

    what: ClassVar[Pass]
    fields: ClassVar[dict[str, str]]

    def _order(self, ctx: TaskContext, options: dict[str, Any]) -> Order:
        return order_of(ctx, with_options(self.what.policy(), options, self.fields))

    def inspect(self, ctx: TaskContext, options: dict[str, Any]) -> Decision:
        """What the pass would do now."""
        found = foretell(ctx, self.what, self._order(ctx, options))
        ids, (before, after) = list(found.jobs[:NAMED]), found.moves
        diff: list[tuple[str, Any, Any]] = [(job, before, after) for job in ids]
        verdict = CHANGE if found.count else SAME
        return Decision(verdict, found.count, ids, found.removals, diff=diff, returns=self._returns(found.report, ids))

    def act(self, ctx: TaskContext, options: dict[str, Any], plan: Decision, resumed: bool) -> Result:
        """Runs the pass under the queue's lease, or through a live daemon."""
        if resumed and options.get("limit") is not None:
            # A limit that an earlier try used up, wholly or in part.
            left = set(foretell(ctx, self.what, self._order(ctx, options)).jobs) & set(plan.items)
            if not left:
                return Result(plan.count > 0, plan.count, plan.items, returns=plan.returns)
            options = {**options, "limit": len(left)}
        row = carry_out(ctx, self.what, self._order(ctx, options), tuple(self.what.counted))
        count = sum(int(row[name]) for name in self.what.counted)
        if resumed:
            count = max(count, plan.count)  # an earlier try did the rest
        ids = row.get(f"{next(iter(self.what.counted), '')}_jobs") or plan.items
        returns = {name: row[name] for name in self.what.counted} | {"ids": ids}
        return Result(count > 0, count, ids, returns=returns)

    def _returns(self, report: Any, ids: list[str]) -> dict[str, Any]:
        row = report.as_row()
        return {name: row[name] for name in self.what.counted} | {"ids": ids}


_SETS = {"promote": {"reads": frozenset({SCHEDULED}), "moves": frozenset({SCHEDULED, PENDING})}}
"""Where a pass's prediction rests on less than all sets of the queue."""


def module_of(what: Pass) -> Module:
    """The module of a pass that has none of its own."""
    flags = [key for name, key in keys(what.policy).items() if name not in _TIMED and isinstance(key.shape, FieldType)]
    told = {
        "what": what,
        **_SETS.get(what.name, {}),
        "name": what.name,
        "summary": what.summary,
        "fields": {key.name: key.path[0] for key in flags},
        "options": tuple(Option(key.name, key.shape, key.help) for key in flags if isinstance(key.shape, FieldType)),
        "returns": {**what.counted, "ids": "the first 1,000 of them"},
    }
    made: Module = type(f"{what.name.title()}Module", (PassModule,), told)()
    return made

"""Due scheduled jobs go to pending or their lane, slice by slice."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from emq_ops.passes.frame.context import Context
from emq_ops.passes.frame.contract import Work
from emq_ops.passes.frame.order import Facts, Glance, Order, Prediction
from emq_ops.passes.promote.declared import PromotePolicy
from emq_ops.passes.report import NAMED, PassReport, name_some
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.scripts import load

SLICE = 500
_KEPT_MS = 86_400_000


@dataclass(slots=True)
class PromoteReport(PassReport):
    """`promoted`: how many went to wait; `promoted_jobs`: the first of them, without those whose reply was lost."""

    promoted: int = 0
    promoted_jobs: list[str] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        """The numbers, for the ledger."""
        return {"promoted": self.promoted} if self.promoted else {}


class Promote(Work):
    """The pass."""

    def report(self, order: Order) -> PromoteReport:
        """An empty report of a run."""
        return PromoteReport(order.queue)

    def run(self, context: Context) -> None:
        """Promotes what is due, up to the policy's limit."""
        report: PromoteReport = context.report
        policy: PromotePolicy = context.policy
        fence, keys = context.begin(tell=False), keys_of(context.queue)
        acted = keys.acted(context.run)
        if context.life:
            _add_lost(context, acted)
        while policy.limit is None or report.promoted < policy.limit:
            if context.budget.up:
                report.more = True
                break
            limit = SLICE if policy.limit is None else min(SLICE, policy.limit - report.promoted)
            number = context.carried["number"] = context.carried.get("number", 0) + 1
            args = [*fence.args, keys.base, limit, number, _KEPT_MS]
            ids = context.server.run(load("promote_pass"), [fence.key, keys.schedule, keys.pending, acted], args)
            context.carried["told"] = number
            report.promoted += len(ids)
            name_some(report.promoted_jobs, [job.decode("utf-8", "replace") for job in ids])
            if len(ids) < limit:
                break
        context.server.write("UNLINK", acted)

    def predict(self, context: Context) -> Prediction:
        """What is due now."""
        policy: PromotePolicy = context.policy
        most = NAMED if policy.limit is None else min(NAMED, policy.limit)
        due, *ids = context.server.run(load("promote_look"), [keys_of(context.queue).schedule], [most], readonly=True)
        count = int(due) if policy.limit is None else min(int(due), policy.limit)
        jobs = [job.decode("utf-8", "replace") for job in ids]
        report = PromoteReport(context.queue, status="dry", promoted=count, promoted_jobs=jobs)
        return Prediction(report, tuple(jobs), count=count, moves=("scheduled", "pending"))

    def glance(self, queue: str, target: str) -> Glance:
        """How many are due."""
        return Glance("promote_look", (keys_of(queue).schedule,), _due)

    def due(self, facts: Facts) -> bool:
        """Whether any is due."""
        return bool(facts.now)


def _due(reply: Any) -> int:
    return int(reply[0])


def _add_lost(context: Context, acted: str) -> None:
    """A slice whose reply was lost: what it did stands on the server."""
    number, _, count = (context.server.read("GET", acted) or b"0 0").partition(b" ")
    if int(number) > context.carried.get("told", 0):
        context.carried["number"] = context.carried["told"] = int(number)
        context.report.promoted += int(count)

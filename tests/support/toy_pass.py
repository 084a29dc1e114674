"""A pass of the tests alone: what the frame does around any pass shows in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from emq_ops.passes.frame.context import Context
from emq_ops.passes.frame.contract import Pass
from emq_ops.passes.frame.order import Facts, Order, Prediction
from emq_ops.passes.observe.queue_work import QueueWork
from emq_ops.passes.report import PassReport
from emq_ops.policy.kinds import POSITIVE
from emq_ops.policy.models import PassPolicy
from emq_ops.policy.options import flat, option
from emq_ops.policy.schedule import Schedule
from emq_ops.policy.triggers import Interval

ACT: list[Callable[[Context], int]] = []
"""What the next runs do, each life one; answers how many toys it moved."""


@dataclass(frozen=True, slots=True)
class ToyPolicy(PassPolicy):
    """How many toys."""

    schedule: Schedule = flat(Schedule(Interval(1_000)))
    toys: int = option(POSITIVE, 1, "how many toys")
    protect: bool = False


@dataclass(slots=True)
class ToyReport(PassReport):
    """`toys`: how many were moved."""

    toys: int = 0
    tokens: list[int] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        return {"toys": self.toys} if self.toys else {}


class Toy(QueueWork):
    """Moves toys."""

    def report(self, order: Order) -> ToyReport:
        return ToyReport(order.queue)

    def run(self, context: Context) -> None:
        context.report.tokens.append(context.begin().token)
        context.report.toys += ACT.pop(0)(context) if ACT else context.policy.toys

    def predict(self, context: Context) -> Prediction:
        return Prediction(ToyReport(context.queue, status="dry", toys=context.policy.toys))

    def due(self, facts: Facts) -> bool:
        return True


TOY = Pass("toy", "toy", ToyPolicy, work="tests.support.toy_pass:Toy", summary="Move toys.")

"""The promotion of scheduled jobs, as every door knows it: off unless the YAML asks for it, since EchoMQ's own pump
does the same."""

from __future__ import annotations

from dataclasses import dataclass

from emq_ops.passes.frame.contract import Pass
from emq_ops.policy.kinds import POSITIVE
from emq_ops.policy.models import PassPolicy
from emq_ops.policy.options import flat, option
from emq_ops.policy.schedule import Schedule
from emq_ops.policy.triggers import Interval


@dataclass(frozen=True, slots=True)
class PromotePolicy(PassPolicy):
    """The promotion of a queue's scheduled jobs."""

    schedule: Schedule = flat(Schedule(Interval(1_000)), every="how often due scheduled jobs are put to wait")
    limit: int | None = option(POSITIVE, None, "at most so many in one run; without it all that are due")
    protect: bool = False


PROMOTE = Pass(
    "promote",
    "promote",
    PromotePolicy,
    work="emq_ops.passes.promote.promote:Promote",
    summary="Put scheduled jobs that are due to pending or their lane.",
    observes=False,
    rests=False,
    counted={"promoted": "scheduled jobs that were due and wait now"},
)

"""The pump, as every door knows it: off unless the YAML asks for it, since EchoMQ's own does the same."""

from __future__ import annotations

from dataclasses import dataclass

from emq_ops.passes.frame.contract import Pass
from emq_ops.policy.kinds import POSITIVE, SWITCH
from emq_ops.policy.models import PassPolicy
from emq_ops.policy.options import flat, option
from emq_ops.policy.schedule import Schedule
from emq_ops.policy.triggers import Interval


@dataclass(frozen=True, slots=True)
class PromotePolicy(PassPolicy):
    """The pump of a queue: scheduled jobs, repeatables, and signals to flow parents in other queues."""

    schedule: Schedule = flat(
        Schedule(Interval(1_000)), every="how often due scheduled jobs, repeatables and flow signals are seen to"
    )
    limit: int | None = option(POSITIVE, None, "at most so many of each in one run; without it all that are due")
    beside_pump: bool = option(
        SWITCH, False, "fire repeatables also where another pump does: their occurrences may then come twice"
    )
    protect: bool = False


PROMOTE = Pass(
    "promote",
    "promote",
    PromotePolicy,
    work="emq_ops.passes.promote.promote:Promote",
    summary="Pump a queue: scheduled jobs that are due go to wait, due repeatables fire, flow parents elsewhere hear.",
    observes=False,
    rests=False,
    counted={
        "promoted": "scheduled jobs that were due and wait now",
        "fired": "occurrences of repeatables that were admitted",
        "delivered": "signals that flow parents in other queues heard",
        "undeliverable": "signals that were set aside in `outbox-aside`, with the reason",
    },
)

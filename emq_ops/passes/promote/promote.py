"""The pump: due scheduled jobs go to pending or their lane, due repeatables fire, flow parents in other queues hear."""

from __future__ import annotations

from typing import Any

from emq_ops.passes.frame.context import Context
from emq_ops.passes.frame.contract import Work
from emq_ops.passes.frame.order import Facts, Glance, Order, Prediction
from emq_ops.passes.promote.declared import PromotePolicy
from emq_ops.passes.promote.deliver import deliver
from emq_ops.passes.promote.fire import check_pump, fire_due
from emq_ops.passes.promote.report import PromoteReport
from emq_ops.passes.report import NAMED, name_some
from emq_ops.protocol.errors import one_line
from emq_ops.protocol.fence import Fence
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.scripts import load

SLICE = 500
_KEPT_MS = 86_400_000


class Promote(Work):
    """The pass."""

    def report(self, order: Order) -> PromoteReport:
        """An empty report of a run."""
        return PromoteReport(order.queue)

    def run(self, context: Context) -> None:
        """Scheduled jobs, repeatables, signals; of each up to the policy's limit."""
        check_pump(context)
        fence = context.begin(tell=False)
        _promote(context, fence)
        fire_due(context, fence)
        deliver(context)
        _name_bad(context)

    def predict(self, context: Context) -> Prediction:
        """What is due now."""
        policy: PromotePolicy = context.policy
        most = NAMED if policy.limit is None else min(NAMED, policy.limit)
        keys = list(_looked_at(context.queue))
        *due, ids = _parts(context.server.run(load("promote_look"), keys, [most], readonly=True))
        promoted, fired, signals = (int(one) if policy.limit is None else min(int(one), policy.limit) for one in due)
        jobs = [job.decode("utf-8", "replace") for job in ids]
        report = PromoteReport(context.queue, status="dry", promoted=promoted, promoted_jobs=jobs)
        report.fired, report.delivered = fired, signals
        count = promoted + fired + signals
        return Prediction(report, tuple(jobs), count=count, moves=("scheduled", "pending"))

    def glance(self, queue: str, target: str) -> Glance:
        """How many are due."""
        return Glance("promote_look", _looked_at(queue), _due)

    def due(self, facts: Facts) -> bool:
        """Whether any is due."""
        return bool(facts.now)


def _name_bad(context: Context) -> None:
    """Repeatables that can't fire, each said once."""
    known: dict[str, str] = context.services.memory.setdefault(context.memory_key, {})
    report: PromoteReport = context.report
    fresh = {name: why for name, why in report.bad.items() if known.get(name) != why}
    report.notes += [f"repeatable '{one_line(name)}' can't fire: {one_line(why)}" for name, why in fresh.items()]
    context.services.memory[context.memory_key] = dict(report.bad)


def _looked_at(queue: str) -> tuple[str, ...]:
    k = keys_of(queue)
    return k.schedule, k.repeat, k.calendar, k.outbox, k.aside


def _parts(reply: Any) -> tuple[int, int, int, list[bytes]]:
    promoted, fired, signals, _new, *ids = reply
    return promoted, fired, signals, ids


def _due(reply: Any) -> int:
    return sum(int(number) for number in reply[:4])


def _promote(context: Context, fence: Fence) -> None:
    """Due scheduled jobs, slice by slice."""
    report: PromoteReport = context.report
    policy: PromotePolicy = context.policy
    keys = keys_of(context.queue)
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


def _add_lost(context: Context, acted: str) -> None:
    """A slice whose reply was lost: what it did stands on the server."""
    number, _, count = (context.server.read("GET", acted) or b"0 0").partition(b" ")
    if int(number) > context.carried.get("told", 0):
        context.carried["number"] = context.carried["told"] = int(number)
        context.report.promoted += int(count)

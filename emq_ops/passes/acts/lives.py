"""Running an act: through the frame like every pass, and taken up again by another process where it ended early."""

from __future__ import annotations

from typing import Any

from emq_ops.ledger import runs
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.acts.declared import ActPolicy
from emq_ops.passes.acts.options import ActOptions
from emq_ops.passes.acts.report import ActReport
from emq_ops.passes.frame.context import Context, Services
from emq_ops.passes.frame.contract import Pass
from emq_ops.passes.frame.frame import refuse, run_pass
from emq_ops.passes.frame.order import Order
from emq_ops.passes.frame.refusal import OnHoldError, ProtectedError, check_hold, check_protected
from emq_ops.passes.lease.holder import Holder
from emq_ops.passes.lease.kept import NoLease
from emq_ops.passes.lease.owner import ForeignQueueError, check_owner
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.server import Server


def order_of(queue: str, policy: ActPolicy, options: ActOptions, resumes: str = "", **more: Any) -> Order:
    """What a door asks for. `resumes`: the run that goes on; `more`: what the act alone understands."""
    asked = {"sleep": options.sleep, **more}
    return Order(queue, policy, trigger=options.trigger, options=asked, resumes=resumes, progress=options.progress)


def tell_progress(context: Context, total: int) -> None:
    """How many jobs of `total` were seen to."""
    if context.order.progress is not None:
        context.order.progress(context.report.done + sum(context.report.left.values()), total)


def run_act(server: Server, ledger: Ledger, what: Pass, order: Order, options: ActOptions) -> ActReport:
    """The report of an act, over all its lives. Raises what the frame raises, OnHoldError among it."""
    services = Services(server, ledger, emit=options.emit)
    report: ActReport = run_pass(services, what, order, NoLease(server, order.queue, ledger, sets=what.sets)).report
    return report


def check_allowed(server: Server, ledger: Ledger, what: Pass, order: Order) -> None:
    """Raises ProtectedError, ForeignQueueError or OnHoldError where the frame would refuse the act, and records it: for
    acts on several queues, of which none is begun where one is refused."""
    try:
        check_protected(what, order)
        check_owner(server, order.queue, ledger)
        check_hold(ledger, order.queue, server.now_ms(order.queue))
    except (ProtectedError, ForeignQueueError, OnHoldError) as refusal:
        refuse(Services(server, ledger), what, order, refusal)
        raise


def look_again(context: Context) -> None:
    """Between slices, since no lease stands for it: raises OnHoldError where somebody held the queue meanwhile,
    ForeignQueueError where another state took it over."""
    server, ledger, queue = context.server, context.ledger, context.queue
    check_owner(server, queue, ledger)
    check_hold(ledger, queue, server.now_ms(queue))


def check_dead(found: runs.Run) -> None:
    """Raises BadInputError where the process of a run that is not over may still live."""
    process = found.policy.get("process")
    if found.status == runs.RUNNING and isinstance(process, dict) and not Holder(**process).surely_dead:
        raise BadInputError(
            f"run {found.id} is still running, by {found.holder}", fix="wait for it, or end that process"
        )

"""Pausing and resuming queues and lanes from the command line: one run each, one line each."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from emq_ops.cli.context import CommandContext
from emq_ops.cli.output import say
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.acts.declared import PausePolicy
from emq_ops.passes.acts.lives import order_of
from emq_ops.passes.acts.options import ActOptions
from emq_ops.passes.acts.pausing import PauseReport
from emq_ops.passes.frame.context import Services
from emq_ops.passes.frame.contract import Pass
from emq_ops.passes.frame.frame import predict_pass, run_pass
from emq_ops.passes.frame.order import Order
from emq_ops.passes.lease.kept import NoLease
from emq_ops.protocol.server import Server


def pause_all(
    context: CommandContext,
    server: Server,
    what: Pass,
    parts: Sequence[tuple[str, str]],
    *,
    why: str = "",
    dry_run: bool = False,
) -> None:
    """Pauses or resumes (`what`) each of the lanes by their queues ('': the whole queue), and says what was done and
    how to take it back. Raises what the server and the ledger raise."""
    options = ActOptions(why=why)
    rows = []
    with contextlib.ExitStack() as stack:
        ledger = None if dry_run else stack.enter_context(context.ledger())
        for queue, lane in parts:
            order = order_of(queue, PausePolicy(why=why, lane=lane), options)
            if ledger is None:
                report: PauseReport = predict_pass(Services(server, None), what, order).report
            else:
                report = set_beside(server, ledger, what, order)
            say(_told(report))
            rows.append(report.as_row())
    if context.output != "table":
        context.emit_rows(rows, ("queue", "lane", "kind", "status", "paused", "was", "waiting", "active", "run"))


def set_beside(server: Server, ledger: Ledger, what: Pass, order: Order) -> Any:
    """The report of a pass that sets a field of the wire, also beside another state, which is named then. Raises what
    the server and the ledger raise."""
    lease = NoLease(server, order.queue, ledger, sets=what.sets)
    report = run_pass(Services(server, ledger), what, order, lease).report
    if lease.foreign is not None:
        who = f"state {lease.foreign.state}, last by {lease.foreign.holder}"
        say(f"note: {order.queue} is managed by {who}: its plan will show this as drift")
    return report


def _told(report: PauseReport) -> str:
    name = f"{report.queue} {report.lane}".rstrip()
    state = "paused" if report.paused else "resumed"
    if report.paused == report.was:
        return f"{name}: {'paused already' if report.paused else 'not paused'}; nothing was changed"
    goes = f"{report.waiting:,} wait" + (
        f", {report.active:,} in flight go on" if report.paused and report.active else ""
    )
    if report.status == "dry":
        return f"{name}: would be {state} ({goes}); nothing was changed"
    back = f"emq-ops {'lane' if report.lane else 'queue'} {'resume' if report.paused else 'pause'} {name}"
    return f"{name}: {state}; {goes} (run {report.run}; back: {back})"

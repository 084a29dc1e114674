"""Pausing and resuming queues and lanes from the command line: one run each, one line each."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from emq_ops.cli.context import CommandContext
from emq_ops.cli.output import say
from emq_ops.passes.acts.declared import PausePolicy
from emq_ops.passes.acts.lives import order_of
from emq_ops.passes.acts.options import ActOptions
from emq_ops.passes.acts.pausing import PauseReport
from emq_ops.passes.frame.context import Services
from emq_ops.passes.frame.contract import Pass
from emq_ops.passes.frame.frame import predict_pass, run_pass
from emq_ops.passes.lease.kept import NoLease
from emq_ops.protocol.server import Server


def pause_all(
    context: CommandContext,
    server: Server,
    what: Pass,
    queues: Sequence[str],
    *,
    lanes: Sequence[str] = (),
    why: str = "",
    dry_run: bool = False,
) -> None:
    """Pauses or resumes (`what`) each of the queues, or `lanes` of the one queue, and says what was done and how to
    take it back. Raises ForeignQueueError, and what the server and the ledger raise."""
    options = ActOptions(why=why)
    parts = [(queue, lane) for queue in queues for lane in (lanes or [""])]
    rows = []
    with contextlib.ExitStack() as stack:
        ledger = None if dry_run else stack.enter_context(context.ledger())
        for queue, lane in parts:
            order = order_of(queue, PausePolicy(why=why, lane=lane), options)
            if ledger is None:
                report: PauseReport = predict_pass(Services(server, None), what, order).report
            else:
                report = run_pass(Services(server, ledger), what, order, NoLease(server, queue, ledger)).report
            say(_told(report))
            rows.append(report.as_row())
    if context.output != "table":
        context.emit_rows(rows, ("queue", "lane", "kind", "status", "paused", "was", "waiting", "active", "run"))


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

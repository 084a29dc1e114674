"""Acting on what ``emq-ops audit dead`` selected: shown first, done with ``--yes``, taken up again after a kill."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from emq_ops.cli.asking import require
from emq_ops.cli.audit_parts import format_act, show_act
from emq_ops.cli.context import CommandContext
from emq_ops.cli.output import say
from emq_ops.ledger import acts, runs
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.acts.act import ACTS, act, order_to_act, preview_resume, resume
from emq_ops.passes.acts.declared import ActPolicy
from emq_ops.passes.acts.lives import check_allowed, order_of
from emq_ops.passes.acts.options import ActOptions
from emq_ops.passes.acts.report import ActReport
from emq_ops.passes.acts.targets import Targets
from emq_ops.passes.events import Event, PassStarted
from emq_ops.passes.frame.context import Services
from emq_ops.passes.frame.frame import predict_pass
from emq_ops.passes.frame.refusal import check_protected
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.server import Server


def protected(context: CommandContext, queue: str) -> bool:
    """Whether the config protects the queue."""
    return context.layers.effective(queue).protect


def predict(
    context: CommandContext, server: Server, ledger: Ledger | None, kind: str, targets: Sequence[Targets]
) -> list[ActReport]:
    """What an act would do, for each queue. Raises ProtectedError where it would be refused."""
    services = Services(server, ledger)
    orders = [order_to_act(one, ActOptions(protect=protected(context, one.queue))) for one in targets]
    return [predict_pass(services, ACTS[kind], order).report for order in orders]


def carry_out(
    context: CommandContext, server: Server, ledger: Ledger, kind: str, targets: Sequence[Targets], options: ActOptions
) -> list[ActReport]:
    """Acts on each queue. What refuses one of them refuses all, before any is touched; where an act breaks off, what
    was done until then is told, and how to go on."""
    each = {one.queue: replace(options, protect=protected(context, one.queue)) for one in targets}
    for one in targets:
        check_allowed(server, ledger, ACTS[kind], order_to_act(one, each[one.queue]))
    reports: list[ActReport] = []
    for one in targets:
        with _explained_if_it_breaks_off(kind, reports) as note:
            reports.append(act(server, kind, one, ledger, replace(each[one.queue], emit=note)))
    return reports


@contextlib.contextmanager
def _explained_if_it_breaks_off(kind: str, before: Sequence[ActReport]) -> Iterator[Any]:
    begun: list[Event] = []

    def note(event: Event) -> None:
        if isinstance(event, PassStarted):
            begun.append(event)

    try:
        yield note
    except BaseException:
        for report in before:
            say("\n".join(format_act(report)))
        for event in begun:
            back = f", or `emq-ops undo {event.run}` brings back what is gone" if kind == acts.REMOVE else ""
            say(f"emq-ops: {event.queue}: not done; `emq-ops audit dead --resume {event.run}` goes on{back}")
        raise


def go_on(context: CommandContext, run: str, kind: str | None, *, rate: int | None, dry_run: bool) -> None:
    """``--resume RUN``. Raises BadInputError where `kind` says another act than the run is."""
    with context.ledger() as ledger:
        found = runs.get(ledger, run)
        if kind is not None and found.kind != kind:
            raise BadInputError(f"run {run} is a {found.kind}, no {kind}", fix=f"leave --{kind} out")
        protect = protected(context, found.queue)
        if dry_run:
            report = preview_resume(ledger, run)
            check_protected(ACTS[found.kind], order_of(found.queue, ActPolicy(protect=protect), ActOptions()))
        else:
            if found.kind == acts.REMOVE:
                require(context, f"Go on with run {run}, which removes jobs of {found.queue}?")
            with context.server("audit") as server:
                report = resume(server, run, ledger, ActOptions(rate=rate, protect=protect))
    show_act(context, report)

"""Acting on what ``emq-ops audit dead`` selected: shown first, done with ``--yes``, taken up again after a kill."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from emq_ops.cli.audit_parts import format_act, show_act
from emq_ops.cli.context import CommandContext
from emq_ops.cli.output import say
from emq_ops.ledger import acts, runs
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.acts.act import act, check_protect, preview_resume, resume
from emq_ops.passes.acts.options import ActOptions
from emq_ops.passes.acts.report import ActReport, preview
from emq_ops.passes.acts.targets import Targets, note_flow_parents
from emq_ops.passes.events import Event, PassStarted
from emq_ops.passes.lease.owner import check_owner
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.server import Server


def protected(context: CommandContext, queue: str) -> bool:
    """Whether the config protects the queue."""
    return context.layers.effective(queue).protect


def predict(context: CommandContext, server: Server, kind: str, targets: Sequence[Targets]) -> list[ActReport]:
    """What an act would do, for each queue. Raises ProtectedError where it would be refused."""
    for one in targets:
        check_protect(kind, one.queue, protected(context, one.queue))
        if kind == acts.REMOVE:
            note_flow_parents(server, one)
    return [preview(kind, one) for one in targets]


def carry_out(
    context: CommandContext, server: Server, ledger: Ledger, kind: str, targets: Sequence[Targets], options: ActOptions
) -> list[ActReport]:
    """Acts on each queue. What refuses one of them refuses all, before any is touched; where an act breaks off, what
    was done until then is told, and how to go on."""
    for one in targets:
        check_protect(kind, one.queue, protected(context, one.queue))
        check_owner(server, one.queue, ledger)
    reports: list[ActReport] = []
    for one in targets:
        with _explained_if_it_breaks_off(kind, reports) as note:
            reports.append(act(server, kind, one, ledger, replace(options, emit=note)))
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
            check_protect(found.kind, found.queue, protect)
            report = preview_resume(ledger, run)
        else:
            with context.server("audit") as server:
                report = resume(server, run, ledger, ActOptions(rate=rate, protect=protect))
    show_act(context, report)

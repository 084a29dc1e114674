"""Acting on what ``emq-ops audit dead`` selected: shown first, done with ``--yes``, taken up again after a kill."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from emq_ops.cli.audit_parts import tell
from emq_ops.cli.context import CommandContext
from emq_ops.cli.output import emit_one, say
from emq_ops.ledger import acts, runs
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.acts import RATE, ActReport, Chosen, act, check_owner, check_protect, preview, resume
from emq_ops.passes.events import Event, PassStarted
from emq_ops.passes.foresee import left_of, see_parents
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.server import Server


def protected(context: CommandContext, queue: str) -> bool:
    """Whether the config protects the queue."""
    return context.layers.effective(queue).protect


def predict(context: CommandContext, server: Server, kind: str, chosen: Sequence[Chosen]) -> list[ActReport]:
    """What an act would do, for each queue. Raises ProtectedError where it would be refused."""
    for one in chosen:
        check_protect(kind, one.queue, protected(context, one.queue))
        if kind == acts.REMOVE:
            see_parents(server, one)
    return [preview(kind, one) for one in chosen]


def carry_out(
    context: CommandContext,
    server: Server,
    ledger: Ledger,
    kind: str,
    chosen: Sequence[Chosen],
    *,
    why: str,
    meant: Mapping[str, Any],
    rate: int,
) -> list[ActReport]:
    """Acts on each queue. What refuses one of them refuses all, before any is touched; where an act breaks off, what
    was done until then is told, and how to go on."""
    for one in chosen:
        check_protect(kind, one.queue, protected(context, one.queue))
        check_owner(server, one.queue, ledger)
    reports: list[ActReport] = []
    for one in chosen:
        with _told_if_it_breaks_off(kind, reports) as note:
            reports.append(act(server, kind, one, ledger, why=why, meant=meant, rate=rate, emit=note))
    return reports


@contextlib.contextmanager
def _told_if_it_breaks_off(kind: str, before: Sequence[ActReport]) -> Iterator[Any]:
    begun: list[Event] = []

    def note(event: Event) -> None:
        if isinstance(event, PassStarted):
            begun.append(event)

    try:
        yield note
    except BaseException:
        for report in before:
            tell(report)
        for event in begun:
            back = f", or `emq-ops undo {event.run}` brings back what is gone" if kind == acts.REMOVE else ""
            say(f"emq-ops: {event.queue}: not done; `emq-ops audit dead --resume {event.run}` goes on{back}")
        raise


def go_on(context: CommandContext, run: str, kind: str | None, *, rate: int, dry_run: bool, output: str) -> None:
    """``--resume RUN``. Raises BadInputError where `kind` says another act than the run is."""
    with context.ledger() as ledger:
        found = runs.get(ledger, run)
        if kind is not None and found.kind != kind:
            raise BadInputError(f"run {run} is a {found.kind}, no {kind}", fix=f"leave --{kind} out")
        protect = protected(context, found.queue)
        if dry_run:
            check_protect(found.kind, found.queue, protect)
            report = left_of(ledger, run)
        else:
            with context.server("audit") as server:
                report = resume(server, run, ledger, rate=rate if rate != RATE else None, protect=protect)
    tell(report)
    if output != "table":
        emit_one(report.as_row(), output)

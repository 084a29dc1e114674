"""Taking waiting jobs away from the command line: shown, asked, one run, one undo."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence

import typer

from emq_ops.cli.asking import ask
from emq_ops.cli.audit_acting import carry_out, predict, tell_acts
from emq_ops.cli.context import CommandContext
from emq_ops.cli.exits import EXIT_ERROR
from emq_ops.cli.output import counted, say
from emq_ops.ledger import acts
from emq_ops.passes.acts.options import ActOptions
from emq_ops.passes.acts.report import ActReport
from emq_ops.passes.acts.targets import Targets
from emq_ops.passes.acts.waiting import WaitingSelection, WaitingSet
from emq_ops.protocol.errors import BadInputError, one_line
from emq_ops.protocol.server import Server

DRAIN_RATE = 5_000
"""Jobs a second, unless said otherwise: nobody's deaths are looked up."""


def selected(server: Server, queues: Sequence[str], selection: WaitingSelection) -> list[Targets]:
    """What the selection takes on each queue, those without left out; says what it could not decide. Raises
    BadInputError where nothing is taken: never "all" by mistake."""
    found: list[Targets] = []
    for queue in queues:
        waiting = WaitingSet(server, queue, selection)
        targets = waiting.targets()
        if waiting.undecided:
            say(f"note: {queue}: of {waiting.undecided} jobs the condition can't be told ({one_line(waiting.why)})")
        if targets.jobs:
            found.append(targets)
    if not found:
        raise BadInputError("no waiting job fits", where=", ".join(queues[:5]), fix="see `emq-ops job ls`")
    return found


def act_on_waiting(
    context: CommandContext,
    server: Server,
    targets: Sequence[Targets],
    options: ActOptions,
    *,
    yes: bool,
    dry_run: bool,
) -> list[ActReport]:
    """Takes the jobs away, or moves them where `options` say to, or shows what would become of them. Raises Exit where
    nothing was done that should be, Abort where the answer is no, ProtectedError, and what the server and the ledger
    raise."""
    acting = not dry_run and (yes or sys.stdin.isatty())
    with contextlib.ExitStack() as stack:
        ledger = stack.enter_context(context.ledger() if acting else context.ledger_if_there())
        kind, verb = (acts.DRAIN, "Remove") if options.to is None else (acts.MOVE, "Move")
        reports = predict(context, server, ledger, kind, targets, options)
        count = sum(report.selected - sum(report.left.values()) for report in reports)
        question = f"{verb} {counted(count, 'waiting job')} of {counted(len(targets), 'queue')}?"
        if not acting or ledger is None:
            tell_acts(reports, None)
            say(f"nothing was changed; with --yes {count} would be {verb.lower()}d")
        elif ask(context, question, yes):
            reports = carry_out(context, server, ledger, kind, targets, options)
            tell_acts(reports, ledger)
        else:
            raise typer.Abort
    if context.output != "table":
        context.emit_rows([one.as_row() for one in reports], ("queue", "kind", "status", "selected", "done", "run"))
    if acting and not any(report.done for report in reports):
        raise typer.Exit(EXIT_ERROR)
    return reports

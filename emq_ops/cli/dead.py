"""``emq-ops dead``: list dead jobs, put them back to wait, take them away."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from emq_ops.cli.asking import ask
from emq_ops.cli.audit_acting import carry_out, go_on, predict, tell_acts
from emq_ops.cli.audit_dead import tell_errors
from emq_ops.cli.audit_parts import DONE_WORDS, format_act
from emq_ops.cli.context import CommandContext
from emq_ops.cli.dead_list import auditor_of
from emq_ops.cli.dead_options import DeadFilters, Limit, Oldest, filtering, limited
from emq_ops.cli.exits import EXIT_ERROR
from emq_ops.cli.options import ActRate, ActWhy, DryRun, SomeQueues, Yes
from emq_ops.cli.output import counted, say
from emq_ops.ledger import acts
from emq_ops.passes.acts.declared import RATE
from emq_ops.passes.acts.options import ActOptions
from emq_ops.passes.acts.targets import Targets
from emq_ops.protocol.errors import BadInputError

Resume = Annotated[str | None, typer.Option("--resume", help="Go on with a run that ended early.", metavar="RUN")]


@filtering
def requeue(
    ctx: typer.Context,
    queues: SomeQueues = None,
    limit: Limit = None,
    oldest: Oldest = False,
    reset: Annotated[bool, typer.Option("--reset-attempts", help="They begin at the first attempt again.")] = False,
    keep: Annotated[
        int | None,
        typer.Option("--max-attempts", help="They keep at most so many of their attempts.", metavar="N", min=0),
    ] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    rate: ActRate = RATE,
    why: ActWhy = "",
    resumed: Resume = None,
    *,
    filters: DeadFilters,
) -> None:
    """Put dead jobs back to wait; one run over all queues, with one undo of those that nobody claimed since.

    Attempts stay, unless --reset-attempts or --max-attempts says otherwise: a job at its last attempt dies at its next
    error. Attempts are also the token that fences off a worker which still holds the job; one that a lock holds is
    left then.

    Examples:

      emq-ops dead requeue orders --error '*HTTP 503*' --reset-attempts

      emq-ops dead requeue 'mail-*' --limit 5 --oldest --yes
    """
    if reset and keep is not None:
        raise BadInputError("--reset-attempts and --max-attempts at once", fix="give one of them")
    options = ActOptions(rate, why=why, filters=filters.as_row(), keep_attempts=0 if reset else keep)
    choice = _Choice(queues, filters, limit, oldest, resumed)
    _act(CommandContext.of(ctx), acts.REQUEUE, choice, options, yes=yes, dry_run=dry_run)


@filtering
def remove(
    ctx: typer.Context,
    queues: SomeQueues = None,
    limit: Limit = None,
    oldest: Oldest = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    rate: ActRate = RATE,
    why: ActWhy = "",
    resumed: Resume = None,
    *,
    filters: DeadFilters,
) -> None:
    """Take dead jobs away, whole; one run over all queues, and `emq-ops undo RUN` brings them back.

    Examples:

      emq-ops dead remove orders --older 30d --dry-run

      emq-ops dead remove orders --payload '"tenant":42' --why 'left us' --yes
    """
    options = ActOptions(rate, why=why, filters=filters.as_row())
    choice = _Choice(queues, filters, limit, oldest, resumed)
    _act(CommandContext.of(ctx), acts.REMOVE, choice, options, yes=yes, dry_run=dry_run)


@dataclass(frozen=True, slots=True)
class _Choice:
    """Which dead jobs a command line means, or which run goes on."""

    queues: Sequence[str] | None
    filters: DeadFilters
    limit: int | None
    oldest: bool
    resumed: str | None


def _act(context: CommandContext, kind: str, choice: _Choice, options: ActOptions, *, yes: bool, dry_run: bool) -> None:
    queues, filters, limit = choice.queues, choice.filters, choice.limit
    if choice.resumed is not None:
        if queues or filters.narrows or limit:
            raise BadInputError("--resume with a queue or a filter", fix="it goes on with the jobs that were selected")
        go_on(context, choice.resumed, kind, rate=options.rate if options.rate != RATE else None, dry_run=dry_run)
        return
    if not queues and not filters.narrows:
        raise BadInputError(f"dead {kind} without a queue or a filter", fix="name the queue, or say which jobs")
    with context.server("dead") as server, contextlib.ExitStack() as stack:
        acting = not dry_run and (yes or sys.stdin.isatty())
        ledger = stack.enter_context(context.ledger() if acting else context.ledger_if_there())
        auditor = auditor_of(context, server, ledger, queues, filters)
        picked: dict[str, Targets] = {}
        for one, _ in limited(auditor.jobs(), limit, oldest=choice.oldest, minted=lambda pair: pair[0].job):
            picked.setdefault(one.queue, Targets(one.queue)).add(one)
        found = auditor.finish()
        targets = [picked[queue] for queue in sorted(picked) if picked[queue].jobs]
        if not targets:
            text = "no dead job that fits has a readable row" if found.dead else "there is no dead job to act on"
            raise BadInputError(text, where=", ".join(found.queues[:5]), fix="see `emq-ops dead ls`")
        tell_errors(found)
        reports = predict(context, server, ledger, kind, targets, options)
        if acting and not yes:
            for report in reports:
                say("\n".join(format_act(report)))
        count = sum(report.selected - sum(report.left.values()) for report in reports)
        question = f"{kind.capitalize()} {counted(count, 'dead job')} in {counted(len(targets), 'queue')}?"
        if not acting or ledger is None:
            tell_acts(reports, None)
            say(f"nothing was changed; with --yes {count} would be {DONE_WORDS[kind]}")
        elif not ask(context, question, yes, removes=kind == acts.REMOVE):
            raise typer.Abort
        else:
            reports = carry_out(context, server, ledger, kind, targets, options)
            tell_acts(reports, ledger)
    if context.output != "table":
        context.emit_rows(
            [report.as_row() for report in reports], ("queue", "kind", "status", "selected", "done", "run")
        )
    if acting and not any(report.done for report in reports):
        raise typer.Exit(EXIT_ERROR)

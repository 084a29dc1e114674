"""``emq-ops audit dead``: the dead jobs in groups, and acts on a selection of them."""

from __future__ import annotations

import contextlib
import itertools
from typing import Annotated, Any

import typer

from emq_ops.audit.dead import AuditOptions, DeadAudit, DeadAuditor
from emq_ops.audit.restarts import iso
from emq_ops.audit.suspects import BURST, Suspect
from emq_ops.cli.asking import require
from emq_ops.cli.audit_parts import Html, Queues, check_page, longest_lease, put_page, queues_of
from emq_ops.cli.context import CommandContext
from emq_ops.cli.dead_options import DeadFilters, filtering
from emq_ops.cli.exits import EXIT_ERROR
from emq_ops.cli.options import ActRate
from emq_ops.cli.output import counted, emit_rows, say
from emq_ops.ledger import acts
from emq_ops.passes.acts.deadset import DeadJob
from emq_ops.passes.acts.declared import RATE
from emq_ops.passes.acts.errortext import text_of
from emq_ops.passes.acts.options import ActOptions
from emq_ops.passes.acts.report import ActReport
from emq_ops.passes.acts.targets import Targets
from emq_ops.protocol.errors import BadInputError, one_line

GROUPS = ("queue", "cause", "group", "jobs", "error", "first_seen", "last_seen", "suspects", "examples")
JOBS = ("queue", "job", "cause", "group", "attempts", "stalls", "first_seen", "killed_by", "suspect", "error")
TEXT = 300


@filtering
def dead(
    ctx: typer.Context,
    queues: Queues = None,
    *,
    filters: DeadFilters,
    history: Annotated[bool, typer.Option("--history", help="Plot deaths of jobs that are gone, too.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="A row a job instead of a row a group.")] = False,
    burst: Annotated[int, typer.Option(help="So many counted stalls in one pass are a burst.", min=1)] = BURST,
    html: Html = None,
    requeue: Annotated[bool, typer.Option("--requeue", help="Put these jobs back to wait (needs --yes).")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Take these jobs away (needs --yes).")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it; without, it is only shown.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show, whatever else is said.")] = False,
    rate: ActRate = RATE,
    why: Annotated[str, typer.Option(help="Recorded with the act.")] = "",
    resumed: Annotated[
        str | None, typer.Option("--resume", help="Go on with an act that was killed.", metavar="RUN")
    ] = None,
) -> None:
    """Group the dead jobs by queue, cause and normalised error; requeue or remove a selection.

    Numbers and ids in error texts don't matter for the grouping. --requeue and --remove show what they would do; with
    --yes they do it, recorded with who and why, resumable after a kill; a removal can be undone (emq-ops undo RUN).

    Examples:

      emq-ops audit dead

      emq-ops audit dead orders --error '*HTTP 503*' --list
    """
    context = CommandContext.of(ctx)
    check_page(html, context.output)
    if requeue and remove:
        raise BadInputError("--requeue and --remove at once", fix="give one of them")
    selection, suspects = filters.selection, filters.suspects
    kind = acts.REQUEUE if requeue else acts.REMOVE if remove else None
    if resumed is not None or kind is not None:
        from emq_ops.cli import audit_acting  # and all that acts, which looking needs none of
    if resumed is not None:
        if queues or selection.narrows or suspects:
            raise BadInputError("--resume with a queue or a filter", fix="it goes on with the jobs that were selected")
        audit_acting.go_on(context, resumed, kind, rate=rate if rate != RATE else None, dry_run=dry_run)
        return
    if kind and not queues and not selection.narrows and not suspects:
        raise BadInputError(f"--{kind} without a queue or a filter", fix="name the queue, or say which jobs")
    with context.server("audit") as server, contextlib.ExitStack() as stack:
        acting = kind is not None and yes and not dry_run
        ledger = stack.enter_context(context.ledger() if acting else context.ledger_if_there())
        names = queues_of(context, server, queues, ledger)
        wanted = AuditOptions(suspects, history, burst, longest_lease(context, names))
        auditor = DeadAuditor(server, names, selection, ledger, wanted)
        if listed and kind is None:
            _list(auditor, context, html)
            return
        picked: dict[str, Targets] = {}
        for one, _ in auditor.jobs():
            if kind is not None:
                picked.setdefault(one.queue, Targets(one.queue)).add(one)
        found = auditor.finish()
        targets = [picked[queue] for queue in sorted(picked) if picked[queue].jobs]
        if kind is not None and not targets:
            if found.dead:
                raise BadInputError("no dead job that fits has a readable row", fix="see `emq-ops doctor`")
            raise BadInputError("there is no dead job to act on", where=", ".join(names[:5]))
        reports: list[ActReport] = []
        if kind is not None and acting and ledger is not None:
            if kind == acts.REMOVE:
                require(context, f"Remove {counted(sum(len(one.jobs) for one in targets), 'dead job')}?", yes)
            options = ActOptions(rate, why=why, filters=filters.as_row())
            reports = audit_acting.carry_out(context, server, ledger, kind, targets, options)
        elif kind is not None:
            reports = audit_acting.predict(context, server, ledger, kind, targets)
    try:
        _show_dead(found, reports, html, context, acts_asked=kind is not None)
    finally:
        if kind is not None:
            audit_acting.tell_acts(reports, ledger if acting else None)
    if kind is not None and not acting:
        say(f"nothing was changed; add --yes to {kind} them")
    if acting and not any(report.done for report in reports):
        raise typer.Exit(EXIT_ERROR)


def _show_dead(
    found: DeadAudit, reports: list[ActReport], html: str | None, context: CommandContext, *, acts_asked: bool
) -> None:
    if html is not None:
        from emq_ops.audit.page import dead_page  # and its templates: just where a page is asked for

        put_page(dead_page(found), html)
    rows = [_group_row(row) for row in found.as_row()["groups"]]
    if context.output == "json":
        document = found.as_row() | {"groups": rows}
        context.emit_one(document | ({"acts": [report.as_row() for report in reports]} if acts_asked else {}))
    elif html != "-" and (rows or context.output != "table"):
        flat = [{**row, "examples": " ".join(row["examples"])} for row in rows]
        context.emit_rows(flat if context.output in ("table", "csv") else rows, GROUPS)
    if context.output == "table" and html != "-":
        _sections(found)
    for note in found.notes:
        say(f"note: {one_line(note)}")
    tell_errors(found)
    say(f"{found.dead} dead in {counted(len(found.queues), 'queue')}, {counted(len(found.groups), 'group')}")


def _group_row(row: dict[str, Any]) -> dict[str, Any]:
    """A group with instants as text beside the ms, and its sample as a line."""
    sample = row.pop("sample")
    size = row.pop("sample_size")
    shown = text_of(sample, TEXT, size) if sample is not None else None
    return {**row, "first_seen": iso(row["first_seen_ms"]), "last_seen": iso(row["last_seen_ms"]), "sample": shown}


def _sections(found: DeadAudit) -> None:
    for title, rows, columns in (
        ("restart suspects", [one.as_row() for one in found.suspects[:20]], ("queue", "job", "sure", "evidence")),
        ("bursts", [one.as_row() for one in found.bursts[-20:]], ("queue", "run", "evidence", "jobs")),
        ("vanished", found.vanished[:20], ("queue", "job", "was", "interruption")),
    ):
        if rows:
            say(f"\n{title}:")
            emit_rows(rows, "table", columns)
    if found.suspect_count > 20:
        say(f"{found.suspect_count - 20} more restart suspects: --suspects --list")


def _list(auditor: DeadAuditor, context: CommandContext, html: str | None) -> None:
    """A row a job, as they come. Where nothing fits that is said before anything is written: it may be an error."""
    rows = (job_row(one, why) for one, why in auditor.jobs())
    first = next(rows, None)
    if first is None:
        auditor.finish()
    listed = itertools.chain(() if first is None else (first,), rows)
    if html == "-":  # the page has stdout
        for _ in listed:
            pass
    else:
        context.emit_rows(listed, JOBS)
    found = auditor.found if first is None else auditor.finish()
    if html is not None:
        from emq_ops.audit.page import dead_page

        put_page(dead_page(found), html)
    for note in found.notes:
        say(f"note: {one_line(note)}")


MOST_ERRORS = 5
"""Errors that several queues share: so many are told."""


def tell_errors(found: DeadAudit) -> None:
    """A line for each error that jobs of several queues died of."""
    for (cause, text), of in found.across()[:MOST_ERRORS]:
        where = ", ".join(f"{queue} {jobs}" for queue, jobs in of.most_common(MOST_ERRORS))
        more = ", ..." if len(of) > MOST_ERRORS else ""
        say(f"{of.total()} died of '{one_line(text) or cause}' in {len(of)} queues: {where}{more}")


def job_row(one: DeadJob, why: Suspect | None) -> dict[str, Any]:
    """A dead job as a row of JOBS, and of more for machines."""
    known = one.known
    return {
        "queue": one.queue,
        "job": one.job,
        "cause": one.cause,
        "group": one.error_group,
        "lane": one.group,
        "attempts": one.attempts,
        "stalls": one.stalls,
        "first_seen": iso(one.first_seen_ms),
        "first_seen_ms": one.first_seen_ms,
        "killed_by": known.killed_by if known else None,
        "interruption": known.interruption if known else None,
        "evidence": known.evidence if known else None,
        "suspect": why.evidence if why else None,
        "error": text_of(one.error, TEXT, one.error_size) if one.error is not None else None,
    }

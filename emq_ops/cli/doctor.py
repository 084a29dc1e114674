"""``emq-ops doctor``: what no transition repairs."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from emq_ops.audit.doctor import KINDS, Diagnosis, Finding, Mended, kinds_named
from emq_ops.audit.doctor.consult import consult, treat
from emq_ops.audit.doctor.mend import may_mend
from emq_ops.audit.pumping import pumping
from emq_ops.cli.asking import ask
from emq_ops.cli.context import CommandContext
from emq_ops.cli.doctor_foundations import foundations_of, state_of
from emq_ops.cli.exits import EXIT_CHANGES, EXIT_UNREACHABLE
from emq_ops.cli.options import new_app
from emq_ops.cli.output import emit_one, emit_rows, say
from emq_ops.cli.progress import bar
from emq_ops.cli.queues import chosen
from emq_ops.cli.risks import tell_risks
from emq_ops.database.errors import DatabaseError
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.lease.holder import who
from emq_ops.protocol.errors import UnreachableError, one_line

app = new_app()

TABLE = ("queue", "kind", "subject", "detail", "safe")
COLUMNS = ("queue", "kind", "subject", "detail", "safe", "meaning", "mending")


def as_row(finding: Finding, also: frozenset[str] = frozenset()) -> dict[str, object]:
    """A finding as plain values; `safe`: ``--fix`` would mend it."""
    about = finding.about
    return {
        "queue": finding.queue,
        "kind": finding.kind,
        "subject": finding.subject.decode("utf-8", "backslashreplace"),
        "detail": finding.detail,
        "meaning": about.meaning,
        "mending": about.mending or "none: a person must decide",
        "safe": may_mend(finding, also),
    }


@app.command()
def doctor(
    ctx: typer.Context,
    queues: Annotated[list[str] | None, typer.Argument(help="Queues or globs; all without.", metavar="QUEUE")] = None,
    fix: Annotated[
        bool, typer.Option("--fix", help="Mend what is safe, after showing it; a terminal is asked first.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Mend without asking.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show, whatever else is said.")] = False,
    only: Annotated[
        list[str] | None, typer.Option(help="Just this kind of damage; repeatable.", metavar="KIND")
    ] = None,
    also: Annotated[
        list[str] | None, typer.Option(help="Mend this kind too, though not safe by itself.", metavar="KIND")
    ] = None,
    kinds: Annotated[bool, typer.Option("--kinds", help="List every kind of damage and its mending.")] = False,
) -> None:
    """Find what no transition repairs, and with --fix mend what is safe.

    Reads by bounded scans, beside running workers; each finding is confirmed in one script. Exit 0: nothing is left to
    mend; 2: something is; 3: the server does not answer (the rest was looked at), or nothing is left but queues whose
    slot a Cluster is moving, which are not judged. Looked at are also the state, the archive's two sides (heads of logs
    and a sample of segments), leases, tasks that are overdue, clocks and disk space.

    Examples:

      emq-ops doctor

      emq-ops doctor orders --fix
    """
    context = CommandContext.of(ctx)
    if kinds:
        rows = [{"kind": k.name, "safe": k.safe, "meaning": k.meaning, "mending": k.mending} for k in KINDS.values()]
        context.emit_rows(rows, ["kind", "safe", "meaning", "mending"])
        return
    wanted, asked = kinds_named(only or []), kinds_named(also or [])
    unusable: list[Finding] = []
    with contextlib.ExitStack() as stack:
        ledger = stack.enter_context(state_of(context, unusable))
        try:
            server = stack.enter_context(context.server("doctor"))
            names = chosen(context, queues or (), {*server.queues(), *context.layers.literals}, server)
        except UnreachableError as fault:
            _show_without_server(context, fault, unusable, queues or (), ledger, wanted)
            raise typer.Exit(EXIT_UNREACHABLE) from None
        with bar("doctor") as progress:
            diagnosis = consult(server, names, ledger, listed=wanted | asked, progress=progress)
            diagnosis.findings += [*unusable, *foundations_of(context, server, names, ledger)]
        layers = context.layers
        diagnosis.notes += pumping(server, ledger, names, lambda queue: "promote" in layers.effective(queue).passes)
        diagnosis = _only(diagnosis, wanted)
        tell_risks(context, server)
        mendable = [finding for finding in diagnosis.findings if may_mend(finding, asked)]
        acting = fix and not dry_run and bool(mendable)
        if acting and unusable:
            raise DatabaseError(unusable[0].detail, fix="mends are written down: mend the state first")
        document = _document(diagnosis, asked)
        if context.output == "json" and not acting:
            emit_one(document, "json")
        _show(diagnosis, context.output, asked)
        if not acting:
            raise typer.Exit(_code(diagnosis))
        if context.output == "json":  # one document: what was found, and what became of it
            for row in map(as_row, mendable):
                say(f"{row['queue']} {row['kind']} {row['subject']}: {row['mending']}")
        if not _agreed(context, len(mendable), yes, asked):
            if context.output == "json":
                emit_one(document, "json")
            say("emq-ops: nothing was changed")
            raise typer.Exit(EXIT_CHANGES)
        outcomes: list[Mended] = []
        for outcome in treat(server, mendable, also=asked, ledger=ledger, holder=who()):
            outcomes.append(outcome)
            say(_format_outcome(outcome))
        with bar("doctor") as progress:
            left = consult(server, names, ledger, listed=wanted | asked, progress=progress)
            left.findings += [*unusable, *foundations_of(context, server, names, ledger)]
        left = _only(left, wanted)
    if context.output == "json":
        emit_one(
            document | {"mended": list(map(_outcome, outcomes)), "left": _document(left, asked)["findings"]}, "json"
        )
    say(f"{len(left.findings)} left" if left.findings else "healthy now")
    raise typer.Exit(_code(left))


def _show_without_server(
    context: CommandContext,
    fault: UnreachableError,
    unusable: list[Finding],
    queues: Sequence[str],
    ledger: Ledger | None,
    wanted: frozenset[str],
) -> None:
    """What can be said while the server does not answer: of the state, the archive and the disk."""
    names = [*queues] or sorted(context.layers.literals)
    diagnosis = Diagnosis(queues=names)
    diagnosis.findings = [Finding("", "server_unreachable", (fault.where or "").encode(), str(fault)), *unusable]
    diagnosis.findings += foundations_of(context, None, names, ledger)
    diagnosis = _only(diagnosis, wanted)
    if context.output == "json":
        emit_one(_document(diagnosis, frozenset()), "json")
    _show(diagnosis, context.output, frozenset())


def _code(diagnosis: Diagnosis) -> int:
    if diagnosis.findings:
        return EXIT_CHANGES
    return EXIT_UNREACHABLE if diagnosis.unjudged else 0


def _agreed(context: CommandContext, count: int, yes: bool, also: frozenset[str]) -> bool:
    """Whether to mend. Where no terminal is there to ask, ``--fix`` itself says so of what is safe; not of more."""
    return ask(context, f"Mend {count}?", yes or (not also and not sys.stdin.isatty()))


def _only(diagnosis: Diagnosis, kinds: frozenset[str]) -> Diagnosis:
    if kinds:
        diagnosis.findings = [finding for finding in diagnosis.findings if finding.kind in kinds]
    return diagnosis


def _document(diagnosis: Diagnosis, also: frozenset[str]) -> dict[str, Any]:
    """An examination as one JSON object."""
    rows = [as_row(finding, also) for finding in diagnosis.findings]
    unlisted = [{"queue": q, "kind": kind, "more": n} for (q, kind), n in sorted(diagnosis.unlisted.items())]
    told = {"queues": diagnosis.queues, "findings": rows, "unlisted": unlisted, "notes": diagnosis.notes}
    return {**told, "unjudged": diagnosis.unjudged}


def _show(diagnosis: Diagnosis, output: str, also: frozenset[str]) -> None:
    rows = [as_row(finding, also) for finding in diagnosis.findings]
    if output in ("jsonl", "csv"):
        emit_rows(rows, output, COLUMNS)
    elif output == "table" and rows:
        emit_rows(rows, output, TABLE)
        for kind in sorted({finding.kind for finding in diagnosis.findings}):
            about = KINDS[kind]
            say(f"{kind}: {about.meaning}. Mending: {about.mending or 'a person must decide'}.")
    for note in diagnosis.notes if output != "json" else ():
        say(f"note: {one_line(note)}")
    for (queue, kind), more in sorted(diagnosis.unlisted.items()):
        say(f"note: {queue}: {more} more of {kind} are not listed; mend these first, then look again")
    safe = sum(bool(row["safe"]) for row in rows)
    say(
        f"{diagnosis.looked} keys of {len(diagnosis.queues)} queues: "
        + (f"{len(rows)} findings, {safe} of them can be mended with --fix" if rows else "nothing to mend")
    )


def _outcome(outcome: Mended) -> dict[str, object]:
    finding = outcome.finding
    subject = finding.subject.decode("utf-8", "backslashreplace")
    row = {"queue": finding.queue, "kind": finding.kind, "subject": subject}
    return {**row, "outcome": outcome.outcome, "why": outcome.why}


def _format_outcome(outcome: Mended) -> str:
    finding = outcome.finding
    subject = one_line(finding.subject.decode("utf-8", "backslashreplace"))
    why = f" ({outcome.why})" if outcome.why else ""
    return f"{outcome.outcome}: {finding.queue} {finding.kind} {subject}{why}"

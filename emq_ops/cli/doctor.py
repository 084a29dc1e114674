"""``emq-ops doctor``: what no transition repairs."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from emq_ops.audit.doctor import KINDS, Diagnosis, Finding, Mended, kinds_named
from emq_ops.audit.doctor.consult import consult, treat
from emq_ops.audit.doctor.mend import may_mend
from emq_ops.cli.context import CommandContext
from emq_ops.cli.deploying import ask
from emq_ops.cli.exits import EXIT_CHANGES, EXIT_UNREACHABLE
from emq_ops.cli.options import new_app
from emq_ops.cli.output import emit_one, emit_rows, say
from emq_ops.cli.queues import chosen
from emq_ops.database.profile import file_of
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.ownership import states_of
from emq_ops.passes.lease.holder import who
from emq_ops.protocol.errors import EmqError, one_line

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
    mend; 2: something is; 3: nothing is, but for queues whose slot a Cluster is moving, which are not judged.
    """
    context = CommandContext.of(ctx)
    if kinds:
        rows = [{"kind": k.name, "safe": k.safe, "meaning": k.meaning, "mending": k.mending} for k in KINDS.values()]
        context.emit_rows(rows, ["kind", "safe", "meaning", "mending"])
        return
    wanted, asked = kinds_named(only or []), kinds_named(also or [])
    with context.server("doctor") as server, context.ledger_if_there() as ledger:
        names = chosen(context, queues or (), {*server.queues(), *context.layers.literals}, server)
        diagnosis = consult(server, names, ledger, listed=wanted | asked)
        diagnosis.findings += foundations_of(context, names, ledger)
        diagnosis = _only(diagnosis, wanted)
        mendable = [finding for finding in diagnosis.findings if may_mend(finding, asked)]
        acting = fix and not dry_run and bool(mendable)
        document = _document(diagnosis, asked)
        if context.output == "json" and not acting:
            emit_one(document, "json")
        _show(diagnosis, context.output, asked)
        if not acting:
            raise typer.Exit(_code(diagnosis))
        if context.output == "json":  # one document: what was found, and what became of it
            for row in map(as_row, mendable):
                say(f"{row['queue']} {row['kind']} {row['subject']}: {row['mending']}")
        if not _agreed(len(mendable), yes, asked):
            if context.output == "json":
                emit_one(document, "json")
            say("emq-ops: nothing was changed")
            raise typer.Exit(EXIT_CHANGES)
        outcomes: list[Mended] = []
        for outcome in treat(server, mendable, also=asked, ledger=ledger, holder=who()):
            outcomes.append(outcome)
            say(_format_outcome(outcome))
        left = consult(server, names, ledger, listed=wanted | asked)
        left.findings += foundations_of(context, names, ledger)
        left = _only(left, wanted)
    if context.output == "json":
        emit_one(
            document | {"mended": list(map(_outcome, outcomes)), "left": _document(left, asked)["findings"]}, "json"
        )
    say(f"{len(left.findings)} left" if left.findings else "healthy now")
    raise typer.Exit(_code(left))


def foundations_of(context: CommandContext, queues: list[str], ledger: Ledger | None) -> list[Finding]:
    """What is wrong with what the product rests on, as far as it is configured."""
    if context.wiring.archive_local is None:
        return []
    from emq_ops.audit.doctor.foundations import examine_archive, examine_disk, examine_rights

    files = [file_of(url) for url in (context.wiring.state_url, context.local_url)]
    databases = [Path(file) for file in files if file is not None]
    found = examine_disk([file.parent for file in databases])
    try:
        with contextlib.ExitStack() as stack:
            local = stack.enter_context(context.local_for_a_look())
            there = context.wiring.archive_remote is not None
            remote = stack.enter_context(context.remote()) if there else None
            found += examine_archive(local, remote, queues, states_of(ledger) if ledger is not None else ())
    except EmqError as fault:
        found.append(Finding("", "archive_unreadable", context.local_url.encode(), str(fault)))
    return found + examine_rights(databases)  # what was opened, was tightened


def _code(diagnosis: Diagnosis) -> int:
    if diagnosis.findings:
        return EXIT_CHANGES
    return EXIT_UNREACHABLE if diagnosis.unjudged else 0


def _agreed(count: int, yes: bool, also: frozenset[str]) -> bool:
    """Whether to mend. Where no terminal is there to ask, ``--fix`` itself says so of what is safe; not of more."""
    return ask(f"Mend {count}?", yes or (not also and not sys.stdin.isatty()))


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

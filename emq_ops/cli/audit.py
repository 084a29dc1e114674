"""``emq-ops audit``: what died, when and why; and what to do about it."""

from __future__ import annotations

import contextlib
import time
from typing import Annotated

import typer

from emq_ops.audit.life import LifeEvent, life_of
from emq_ops.audit.restarts import audit_restarts, iso
from emq_ops.audit.server_events import format_count, group_by_event
from emq_ops.audit.suspects import BURST
from emq_ops.audit.whatif import begin, fates_of, finish
from emq_ops.cli.audit_parts import Html, Queues, archive_of, check_page, put_page, queues_of
from emq_ops.cli.context import CommandContext
from emq_ops.cli.output import counted, emit_one, emit_rows, say
from emq_ops.cli.queues import chosen
from emq_ops.cli.values import duration_ms
from emq_ops.ledger import interruptions
from emq_ops.ledger.history import queues_to_replay
from emq_ops.protocol.errors import BadInputError, EmqError, UnreachableError, one_line
from emq_ops.protocol.server import Server

CUTS = ("queue", "kind", "started", "ended", "in_flight", "recovered", "exempted", "died", "vanished", "others")
EVENTS = ("queues", "kind", "last_alive", "back", *CUTS[4:], "ids")
"""The server went away after it was last seen alive, and was back by then."""
FATES = ("queue", "job", "verdict", "died", "would_die", "stalls")
MOST_FATES = 1_000
"""So many a table names."""


def restarts(
    ctx: typer.Context,
    queues: Queues = None,
    since: Annotated[str | None, typer.Option(help="Ended at most this long ago (7d).", metavar="DURATION")] = None,
    burst: Annotated[int, typer.Option(help="So many counted stalls in one pass are a burst.", min=1)] = BURST,
    html: Html = None,
) -> None:
    """Tell for each interruption what was in flight, recovered, exempted, died or vanished.

    From the ledger alone: what the daemon, and passes, saw. A table has one row an event, however many queues it
    touched: the server went away after `last_alive`, and was there again at `back`. The other forms have what it was
    for each queue, and what each instant is.

    Examples:

      emq-ops audit restarts --since 7d

      emq-ops audit restarts orders --html restarts.html
    """
    context = CommandContext.of(ctx)
    check_page(html, context.output)
    with context.ledger_if_there() as ledger:
        known = interruptions.contacted_queues(ledger) if ledger is not None else []
        names = chosen(context, queues, {*known, *context.layers.literals}) if queues else None
        found = audit_restarts(ledger, names, since_ms=_since(since), burst=burst)
    events = group_by_event(found.outcomes)
    if html is not None:
        from emq_ops.audit.page import restarts_page  # and its templates: just where a page is asked for

        put_page(restarts_page(found), html)
    if context.output == "json":
        context.emit_one(found.as_row())
    elif html != "-":
        if context.output != "table":
            emit_rows([one.as_row() for one in found.outcomes], context.output, ("id", *CUTS))
        elif found.outcomes:
            emit_rows([event.as_row() for event in events], "table", EVENTS)
        if context.output == "table" and found.bursts:
            say("\nbursts:")
            emit_rows([b.as_row() for b in found.bursts], "table", ("queue", "run", "evidence", "jobs"))
    for note in found.notes:
        say(f"note: {one_line(note)}")
    say(f"{format_count(events)}, {counted(len(found.bursts), 'burst')}")


def _since(text: str | None) -> int:
    ms = duration_ms(text, "--since")
    return 0 if ms is None else time.time_ns() // 1_000_000 - ms


def one_job(
    ctx: typer.Context,
    job: Annotated[str, typer.Argument(help="Its id.", metavar="JOB")],
    html: Html = None,
) -> None:
    """Tell the whole life of one job: ledger, archive, live row.

    Examples:

      emq-ops audit job JOB0SS8QFjgi3i

      emq-ops audit job JOB0SS8QFjgi3i --html job.html
    """
    context = CommandContext.of(ctx)
    check_page(html, context.output)
    notes: list[str] = []
    with contextlib.ExitStack() as stack:
        ledger = stack.enter_context(context.ledger_if_there())
        server, names = None, []
        try:
            server = stack.enter_context(context.server("audit"))
            names = queues_of(context, server, None)
        except UnreachableError as fault:
            if ledger is None and context.wiring.archive_local is None:
                raise
            notes.append(f"without the live row: {fault}")
        archived = _archived(context, job, server, stack, notes)
        life = life_of(job, server=server, queues=names, ledger=ledger, archived=archived)
    if html is not None:
        from emq_ops.audit.page import life_page

        put_page(life_page(life), html)
    if context.output in ("json", "jsonl"):
        context.emit_one(life.as_row())
    elif html != "-":
        rows = [{**event.as_row(), "at": iso(event.at_ms)} for event in life.events]
        context.emit_rows(rows, ("at", "source", "what", "text"))
        if context.output == "table":
            places = [" ".join((f"{place['queue']}:", place["state"], place.get("why", ""))) for place in life.live]
            say(f"\nnow: {', '.join(places).rstrip() or 'not on the server'}")
            if life.kept_ms is not None:
                say(f"as the ledger keeps it, from {iso(life.kept_ms)}:")
            if life.row:
                emit_one(life.row, "table")
            if life.logs:
                say("\nlog:")
                emit_rows([{"line": line} for line in life.logs], "table", ("line",))
    for note in notes:
        say(f"note: {one_line(note)}")


def _archived(
    context: CommandContext, job: str, server: Server | None, stack: contextlib.ExitStack, notes: list[str]
) -> list[LifeEvent]:
    """What the archive has of the job; a store that does not answer is told, not fatal."""
    try:
        archive = stack.enter_context(archive_of(context, server))
        return [] if archive is None else list(archive.events(job))
    except EmqError as fault:
        notes.append(f"without the archive: {fault}")
        return []


def what_would(
    ctx: typer.Context,
    max_stalled: Annotated[int, typer.Option(help="The threshold in question.", min=1)],
    queues: Queues = None,
    since: Annotated[
        str | None, typer.Option(help="Only stalls of this long ago and later (7d).", metavar="DURATION")
    ] = None,
    html: Html = None,
) -> None:
    """Replay the ledger: who would have lived or died at another stall threshold.

    Names each job that died of stalls or would have; the verdict says whether that is the same.

    Examples:

      emq-ops audit what-if --max-stalled 3

      emq-ops audit what-if orders --max-stalled 3 --since 7d
    """
    context = CommandContext.of(ctx)
    check_page(html, context.output)
    with context.ledger_if_there() as ledger:
        if ledger is None:
            chosen(context, queues or (), context.layers.literals)
            raise BadInputError("there is no state database, so nothing to replay", where=context.options.state)
        known = queues_to_replay(ledger)
        seen = {*known, *interruptions.contacted_queues(ledger)}
        names = chosen(context, queues, {*seen, *context.layers.literals}) if queues else known
        found = begin(max_stalled, names)
        fates = fates_of(found, ledger, since_ms=_since(since) or None)
        if context.output in ("jsonl", "csv"):  # as they come: all of them, however many
            context.emit_rows((fate.as_row() for fate in fates if fate.dies), FATES)
        for _ in fates:
            pass
        finish(found, ledger)
    if html is not None:
        from emq_ops.audit.page import whatif_page

        put_page(whatif_page(found), html)
    if context.output == "json":
        context.emit_one(found.as_row())
    elif context.output == "table" and html != "-" and found.fates:
        context.emit_rows([fate.as_row() for fate in found.fates[:MOST_FATES]], FATES)
        if len(found.fates) > MOST_FATES:
            say(f"{len(found.fates) - MOST_FATES} more: --output jsonl")
    for note in found.notes:
        say(f"note: {one_line(note)}")
    say(f"{found.jobs} jobs stalled; {found.died} died, {found.would_die} would have died at {max_stalled}")

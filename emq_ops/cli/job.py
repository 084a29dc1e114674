"""``emq-ops job ls|find|logs``."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer

from emq_ops.cli.audit_parts import archive_of
from emq_ops.cli.context import CommandContext
from emq_ops.cli.job_places import located
from emq_ops.cli.options import QueuesArg
from emq_ops.cli.output import counted, say
from emq_ops.cli.queues import pick
from emq_ops.ledger import acts, deaths, runs
from emq_ops.ledger.ledger import Ledger
from emq_ops.overview.jobs import PLACES, JobLook, TextSearch, jobs_of, whereabouts
from emq_ops.overview.near_jobs import unknown_job
from emq_ops.overview.words import ago
from emq_ops.passes.acts.errortext import text_of
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.ids import is_valid
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions.jobs import read_logs

COLUMNS = ("queue", "job", "state", "lane", "attempts", "when", "payload", "error")
ARCHIVE = "archive:"
"""Where a search goes on in the archive."""
SHOWN = 60
"""Bytes of a payload and an error that a row shows."""


def ls(
    ctx: typer.Context,
    queues: QueuesArg,
    state: Annotated[
        str, typer.Option(help="waiting, scheduled, active, dead; several with commas.", metavar="STATE")
    ] = "waiting",
    limit: Annotated[int, typer.Option(help="At most so many of each queue.", metavar="N", min=1)] = 50,
) -> None:
    """List the jobs of queues: by id, those in flight by their lease, scheduled ones by when they are due.

    Examples:

      emq-ops job ls orders --state active

      emq-ops job ls 'mail-*' --state waiting,scheduled --limit 5
    """
    context, places = CommandContext.of(ctx), _places(state)
    with context.server("job") as server:
        names = pick(context, queues, server)
        for queue in names:
            now = server.now_ms(queue)
            found = itertools.islice(jobs_of(server, queue, places), limit)
            context.emit_rows((row_of(one, now) for one in found), COLUMNS)


def _places(state: str) -> list[str]:
    places = [one.strip() for one in state.split(",") if one.strip()]
    for one in places:
        if one not in PLACES:
            raise BadInputError(f"no state '{one}'", where="--state", fix=f"one of {', '.join(PLACES)}")
    return places or list(PLACES)


def row_of(one: JobLook, now_ms: int) -> dict[str, Any]:
    """A job as a row of COLUMNS, and of more for machines."""
    at = one.at_ms
    when = f"minted {ago(one.minted_ms, now_ms)}" if at is None else ago(at, now_ms)
    return {
        "queue": one.queue,
        "job": one.job,
        "state": one.place,
        "lane": one.lane,
        "attempts": one.attempts,
        "stalls": one.stalls,
        "when": when,
        "minted_ms": one.minted_ms,
        "at_ms": at,
        "payload": None if one.payload is None else text_of(one.payload, SHOWN),
        "error": None if one.error is None else text_of(one.error, SHOWN),
        "damaged": one.damaged,
    }


def find(
    ctx: typer.Context,
    what: Annotated[str, typer.Argument(help="A job's id, or a text of its payload or error.", metavar="TEXT")],
    queue: Annotated[list[str] | None, typer.Option(help="Only there; a glob; repeatable.", metavar="QUEUE")] = None,
    most: Annotated[int, typer.Option(help="Look at so many jobs and records.", metavar="N", min=1)] = 100_000,
    start: Annotated[str, typer.Option("--from", help="Go on where a search ended.", metavar="PLACE")] = "",
) -> None:
    """Find jobs over all queues: by id wherever it is or was, also in the state; or by a text.

    A text is looked for in payloads and errors of jobs on the server, then in the archive's records. It looks at a
    bounded number of them, and says how to go on from there.

    Examples:

      emq-ops job find JOB0SS8QFjgi3i

      emq-ops job find '"tenant":42' --queue 'mail-*'
    """
    context = CommandContext.of(ctx)
    with context.server("job") as server, context.ledger_if_there() as ledger:
        names = pick(context, queue or (), server)
        if what[:3] == "JOB" and is_valid(what):
            _by_id(context, server, ledger, what, names)
            return
        if not what.strip():
            raise BadInputError("nothing to look for", fix="give an id, or a text")
        text = what.encode("utf-8", "surrogateescape")
        live = TextSearch(server, names, text, most, "" if start.startswith(ARCHIVE) else start)
        behind = start if start.startswith(ARCHIVE) else ""
        now = server.now_ms(names[0]) if names else 0
        hits, records, cursor = 0, 0, ""

        def counting() -> Iterator[dict[str, Any]]:
            nonlocal hits, records, cursor
            if not start.startswith(ARCHIVE):
                for one in live:
                    hits += 1
                    yield row_of(one, now)
                cursor = live.cursor
            if cursor or live.looked >= most or context.wiring.archive_local is None:
                cursor = cursor or (ARCHIVE if context.wiring.archive_local is not None else "")
                return
            with archive_of(context) as archive:
                if archive is None:
                    return
                from emq_ops.audit.archive_search import ArchiveSearch, row_of_record  # just where there is an archive

                everywhere = {ref.queue for ref in archive.local.streams()}
                found = ArchiveSearch(archive, names if queue else everywhere, text, most - live.looked, behind)
                for ref, record in found:
                    hits += 1
                    row = row_of_record(ref, record)
                    short = {name: text_of(row[name], SHOWN) for name in ("payload", "error") if row[name] is not None}
                    yield {**row, "when": "" if row["at_ms"] is None else ago(row["at_ms"], now), **short}
                records, cursor = found.looked, found.cursor

        context.emit_rows(counting(), COLUMNS)
    looked = f"{counted(live.looked, 'job')} of {counted(len(names), 'queue')}"
    if context.wiring.archive_local is not None:
        looked += f" and {counted(records, 'record')} of the archive"
    say(f"{counted(hits, 'hit')}; looked at {looked}")
    if cursor:
        only = "".join(f" --queue {shlex.quote(one)}" for one in queue or ())
        say(f"not to the end: emq-ops job find {shlex.quote(what)}{only} --from {shlex.quote(cursor)}")


def _by_id(context: CommandContext, server: Server, ledger: Ledger | None, job: str, names: Sequence[str]) -> None:
    rows = [
        {"queue": queue, "job": job, "state": state, "when": "now", "source": "server"}
        for queue, state in whereabouts(server, job, names).items()
    ]
    rows += [] if ledger is None else _in_state(ledger, job)
    if not rows:
        raise unknown_job(server, job, names, f"the archive may know it: emq-ops job show {job}")
    context.emit_rows(rows, ("queue", "job", "state", "when", "source"))


def _in_state(ledger: Ledger, job: str) -> list[dict[str, Any]]:
    rows = [
        {
            "queue": death.queue,
            "job": job,
            "state": f"dead, then {death.gone_how}" if death.gone_how else "dead",
            "when": death.first_seen_ms,
            "source": "state",
        }
        for death in deaths.iterate(ledger, job=job, with_rows=False)
    ]
    for item in acts.of_job(ledger, job):
        run = runs.find(ledger, item.run)
        queue, kind = (run.queue, run.kind) if run is not None else ("?", "act")
        rows.append(
            {"queue": queue, "job": job, "state": f"{kind}: {item.status}", "when": item.at_ms, "source": "state"}
        )
    return rows


def logs(
    ctx: typer.Context,
    job: Annotated[str, typer.Argument(help="The job.", metavar="JOB")],
    queue: Annotated[str | None, typer.Option(help="Its queue, if known.", metavar="QUEUE")] = None,
) -> None:
    """Print the log lines of a job, oldest first, as they are.

    Examples:

      emq-ops job logs JOB0SS8QFjgi3i

      emq-ops job logs JOB0SS8QFjgi3i --queue orders
    """
    context = CommandContext.of(ctx)
    with context.server("job") as server:
        [(where, _)] = located(context, server, [job], queue).values()
        rows = [{"line": text_of(line)} for line in read_logs(Queue(server, where), job)]
    context.emit_rows(rows, ("line",))

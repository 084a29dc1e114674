"""``emq-ops job delay``: jobs in hand, or scheduled ones, to a later instant."""

from __future__ import annotations

from typing import Annotated

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.exits import EXIT_ERROR
from emq_ops.cli.job_acts import InQueue, JobsArg
from emq_ops.cli.job_places import located
from emq_ops.cli.options import DryRun
from emq_ops.cli.output import say
from emq_ops.cli.values import duration_ms, instant_ms
from emq_ops.protocol.errors import BadInputError, StaleTokenError, StateError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.transitions.settle import delay_at, delay_in

STATES = ("active", "scheduled")


def delay(
    ctx: typer.Context,
    jobs: JobsArg,
    queue: InQueue = None,
    span: Annotated[str | None, typer.Option("--in", help="So long from now (5m).", metavar="DURATION")] = None,
    at: Annotated[
        str | None, typer.Option("--at", help="10:00 (UTC), or 2026-03-01T10:00:00Z.", metavar="INSTANT")
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Put jobs that are in hand or scheduled (back) on the schedule, without an attempt.

    A worker that has one in hand is not stopped: if it settles first, the job is settled; `emq-ops job cancel` asks it
    to stop. A job that waits is left: pause its lane, or move it.

    Examples:

      emq-ops job delay JOB0SS8QFjgi3i --in 5m

      emq-ops job delay JOB0SS8QFjgi3i --at 2026-03-01T10:00:00Z --dry-run
    """
    if (span is None) == (at is None):
        raise BadInputError("until when?" if span is None else "--in and --at at once", fix="give --in or --at")
    context = CommandContext.of(ctx)
    span_ms = duration_ms(span, "--in") if span is not None else None
    at_ms = instant_ms(at, "--at", ahead=True) if at is not None else 0
    rows = []
    with context.server("job") as server:
        for job, (name, state) in located(context, server, jobs, queue).items():
            q = Queue(server, name)
            token = server.read("HGET", q.keys.row(job), "attempts") or b""
            fits = state in STATES and token.isdigit()
            answer = f"left: it is {state}"
            if fits and dry_run:
                answer = f"would be delayed ({state})"
            elif fits:
                try:
                    if span_ms is not None:
                        delay_in(q, job, int(token), span_ms)
                    else:
                        delay_at(q, job, int(token), at_ms)
                    answer = "delayed"
                except (StaleTokenError, StateError):
                    answer = "left: settled or claimed anew meanwhile"
            rows.append({"queue": name, "job": job, "answer": answer})
    context.emit_rows(rows, ("queue", "job", "answer"))
    if dry_run:
        say("nothing was changed")
    elif not any(row["answer"] == "delayed" for row in rows):
        raise typer.Exit(EXIT_ERROR)

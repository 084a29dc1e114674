"""``emq-ops worker cancel``: ask for a job's cancellation."""

from __future__ import annotations

from typing import Annotated

import typer

from emq_ops.cli.asking import ask
from emq_ops.cli.context import CommandContext
from emq_ops.cli.output import counted, say
from emq_ops.cli.queues import require_queue
from emq_ops.protocol.ids import job_id
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.transitions import cancel


def cancel_jobs(
    ctx: typer.Context,
    jobs: Annotated[list[str], typer.Argument(help="The jobs.", metavar="JOB")],
    queue: Annotated[str, typer.Option("--queue", help="The queue.", metavar="QUEUE")],
    reason: Annotated[str, typer.Option(help="Told to the worker, and recorded.")] = cancel.DEFAULT_REASON,
) -> None:
    """Ask for jobs' cancellation: waiting ones are removed, a worker that holds one is told.

    Answers: removed; signalled (lost where no worker listens; the handler may choose to go on); unheld (in flight, but
    its lease lapsed: nobody holds it until a sweep brings it back); locked (it waits, and a worker holds it all the
    same: it stays); gone; not cancellable.

    Examples:

      emq-ops worker cancel JOB0SS8QFjgi3i --queue orders

      emq-ops worker cancel JOB0SS8QFjgi3i --queue orders --reason 'bad deploy'
    """
    context = CommandContext.of(ctx)
    wanted = [job_id(job) for job in jobs]
    with context.places.connect("worker") as server:
        q = Queue(server, queue)
        require_queue(context, queue, server)
        place = str(context.places.server["url"])
        if not ask(context, f"Cancel {counted(len(wanted), 'job')}, those that wait for good?", None, place=place):
            raise typer.Abort
        rows = [{"job": job, "answer": _answer(q, job, reason)} for job in wanted]
    context.emit_rows(rows, ["job", "answer"])
    if any(row["answer"] == UNHELD for row in rows):
        say(f"emq-ops: {UNHELD}: the lease lapsed; `emq-ops sweep {queue}` brings the job back, then cancel it again")


UNHELD = "unheld"


def _answer(q: Queue, job: str, reason: str) -> str:
    answer = cancel.request(q, job, reason)
    if answer is cancel.CancelAnswer.SIGNALLED:
        until = q.server.read("ZSCORE", q.keys.active, job)
        if until is not None and float(until) < q.server.now_ms(q.name):
            return UNHELD
    return answer.value

"""``emq-ops worker run``: try a queue from the shell."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.garbage import collect_for_long
from emq_ops.cli.output import say
from emq_ops.cli.queues import require_queue
from emq_ops.cli.values import duration_ms
from emq_ops.protocol.errors import BadInputError, one_line
from emq_ops.protocol.queue import Queue
from emq_ops.worker import Backoff, BatchConsumer, BatchSettings, Consumer, ConsumerSettings, load_handler
from emq_ops.worker.events import ConsumerReport, Silent, Started, WorkerEvent, describe
from emq_ops.worker.outage import Outage
from emq_ops.worker.settings import sources_of

QueueName = Annotated[str, typer.Option("--queue", help="The queue.", metavar="QUEUE")]
Duration = str


def run(
    ctx: typer.Context,
    handler: Annotated[str, typer.Argument(help="The function that works a job.", metavar="MODULE:HANDLER")],
    queue: QueueName,
    concurrency: Annotated[
        int | None, typer.Option(help="Jobs at once (8); with --batch: batches (1).", metavar="N")
    ] = None,
    claim: Annotated[
        str, typer.Option(help="Which jobs: flat ones, and lanes in rotation, by weight.", metavar="SOURCES")
    ] = "flat,lanes",
    batch: Annotated[
        int | None, typer.Option(help="The function works so many jobs at most, and gives each a verdict.", metavar="N")
    ] = None,
    batch_least: Annotated[int, typer.Option(help="With --batch: so many are worked at once.", metavar="N")] = 1,
    batch_wait: Annotated[
        Duration, typer.Option(help="With --batch: fewer are held back for so long.", metavar="DURATION")
    ] = "1s",
    recovery: Annotated[
        Literal["reap", "stalled", "none"], typer.Option(help="What to do about lapsed leases.")
    ] = "reap",
    max_stalled: Annotated[int, typer.Option(help="With --recovery stalled: the stall that is the last.")] = 1,
    lease: Annotated[Duration, typer.Option(help="How long a claim stands.", metavar="DURATION")] = "30s",
    beat: Annotated[Duration, typer.Option(help="How often to recover and promote.", metavar="DURATION")] = "1s",
    max_attempts: Annotated[int, typer.Option(help="An error at this attempt is the last.")] = 3,
    backoff: Annotated[
        Duration, typer.Option(help="Wait after the first error; twice that after the next.", metavar="DURATION")
    ] = "1s",
    stop: Annotated[Duration, typer.Option(help="How long jobs in hand have at the end.", metavar="DURATION")] = "10s",
    executor: Annotated[
        Literal["script", "native"], typer.Option(help="Scripts, or the module's commands.")
    ] = "script",
    keep: Annotated[bool, typer.Option(help="Extend leases while the process lives.")] = True,
    listen: Annotated[bool, typer.Option("--cancel/--no-cancel", help="Listen for cancellations.")] = True,
    record: Annotated[bool, typer.Option(help="Record each settled job in stream:completions.")] = True,
    new: Annotated[bool, typer.Option("--new", help="The queue may be a new one.")] = False,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="End when nothing is left to claim.")] = False,
    give_up: Annotated[
        Duration | None,
        typer.Option(
            help="With --until-idle: leave jobs that show no sign of life (extend, progress, log) for so long once"
            " nothing else is left; unless given they are waited for, and named.",
            metavar="DURATION",
        ),
    ] = None,
) -> None:
    """Work a queue with a Python function until SIGTERM or Ctrl-C; a second one ends it at once.

    The function is given a job (id, payload, attempts, group, token, extend, progress, log) and answers None, bytes,
    text, what JSON can say, or Delay, Retry, Dead. Exit 1 when jobs were left unsettled; their leases lapse.

    With --batch it is given a list of jobs, and answers a mapping of their ids to verdicts: "ok", {"delay": MS},
    {"error": TEXT}, {"dead": TEXT}. One that it leaves out is retried.

    Examples:

      emq-ops worker run shop.jobs:handle --queue orders

      emq-ops worker run shop.jobs:handle_many --queue orders --batch 100 --batch-least 20 --batch-wait 500ms
    """
    if batch is None and (batch_least != 1 or batch_wait != "1s"):
        raise BadInputError("without --batch there are no batches", where="worker run", fix="add --batch N")
    if give_up is not None and not until_idle:
        raise BadInputError("without --until-idle nothing is given up", where="--give-up", fix="add --until-idle")
    patience = duration_ms(give_up, "--give-up")
    context = CommandContext.of(ctx)
    function = load_handler(handler)
    longest = max(duration_ms(backoff, "--backoff"), 300_000)

    outage = Outage(say)

    def tell(event: WorkerEvent) -> None:
        if not outage.takes(event) and not isinstance(event, Started | ConsumerReport):
            text = one_line(describe(event))
            hint = " (--give-up DURATION would leave them)" if isinstance(event, Silent) and not event.left else ""
            say(text + hint)

    with context.places.connect("worker") as server:
        if not new:
            require_queue(context, queue, server, fix="--new for a queue of this name")
        settings = ConsumerSettings(
            concurrency=concurrency if concurrency is not None else 8 if batch is None else 1,
            claim=sources_of(name.strip() for name in claim.split(",")),
            recovery=recovery,
            max_stalled=max_stalled,
            lease=duration_ms(lease, "--lease"),
            beat=duration_ms(beat, "--beat"),
            max_attempts=max_attempts,
            backoff=Backoff(base=duration_ms(backoff, "--backoff"), longest=longest),
            stop_deadline=duration_ms(stop, "--stop"),
            executor=executor,
            keep=keep,
            cancel=listen,
            record=record,
        )
        q = Queue(server, queue)
        if batch is None:
            consumer = Consumer(q, function, settings, on_event=tell)
        else:
            sizes = BatchSettings(batch, batch_least, duration_ms(batch_wait, "--batch-wait"))
            consumer = BatchConsumer(q, function, settings, batch=sizes, on_event=tell)
        collect_for_long()
        report = consumer.run(signals=True, until_idle=until_idle, give_up=patience)
    names = (
        "queue",
        "completed",
        "cancelled",
        "scheduled",
        "delayed",
        "dead",
        "lost",
        "recovered",
        "abandoned",
        "aside",
    )
    context.emit_one({name: getattr(report, name) for name in names})
    if report.abandoned:
        raise typer.Exit(1)

"""``emq-ops worker stream``: consume an event stream from the shell."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.output import say
from emq_ops.cli.queues import require_queue
from emq_ops.cli.values import duration_ms
from emq_ops.protocol.errors import one_line
from emq_ops.protocol.queue import Queue
from emq_ops.worker import StreamConsumer, StreamSettings, load_handler
from emq_ops.worker.events import WorkerEvent, describe
from emq_ops.worker.outage import Outage
from emq_ops.worker.stream_events import EntrySettled, StreamReport, describe_entry


def stream(
    ctx: typer.Context,
    handler: Annotated[str, typer.Argument(help="The function that handles an entry.", metavar="MODULE:HANDLER")],
    queue: Annotated[str, typer.Option("--queue", help="The queue.", metavar="QUEUE")],
    group: Annotated[str, typer.Option(help="The consumer group.", metavar="GROUP")],
    stream: Annotated[str, typer.Option(help="The stream.", metavar="STREAM")] = "completions",
    consumer: Annotated[str, typer.Option(help="Its name in the group (host and pid).", metavar="NAME")] = "",
    start: Annotated[
        Literal["new", "head"], typer.Option(help="Where a group that is not there yet begins.", metavar="new|head")
    ] = "new",
    attempts: Annotated[int, typer.Option(help="A failure at this delivery is the last.", metavar="N", min=1)] = 5,
    dead: Annotated[str, typer.Option(help="The dead-letter stream (STREAM.dead).", metavar="STREAM")] = "",
    min_idle: Annotated[
        str, typer.Option(help="So long an entry stands still before another takes it over.", metavar="DURATION")
    ] = "30s",
    count: Annotated[int, typer.Option(help="Entries a read.", metavar="N", min=1)] = 100,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="End when there is nothing to read.")] = False,
) -> None:
    """Handle the entries of an event stream, as one consumer of a group, until SIGTERM or Ctrl-C.

    The function is given an entry (id, fields, pairs, attempts, lost) and is done with it unless it raises, or returns
    Retry or Dead. What fails comes again once it is idle; at the last attempt it goes to the dead-letter stream.

    Examples:

      emq-ops worker stream shop.billing:book --queue orders --group billing --start head

      emq-ops worker stream shop.billing:book --queue orders --group billing --consumer b1 --attempts 10
    """
    context, function = CommandContext.of(ctx), load_handler(handler)
    settings = StreamSettings(
        group=group,
        consumer=consumer,
        start=start,
        min_idle=duration_ms(min_idle, "--min-idle"),
        count=count,
        attempts=attempts,
        dead=dead,
    )
    outage = Outage(say)

    def tell(event: WorkerEvent) -> None:
        if isinstance(event, EntrySettled):
            if event.outcome != "handled":
                say(one_line(describe_entry(event)))
        elif not outage.takes(event) and not isinstance(event, StreamReport):
            say(one_line(describe(event)))

    with context.places.connect("worker") as server:
        require_queue(context, queue, server)
        name = stream.removeprefix("stream:")
        report = StreamConsumer(Queue(server, queue), name, function, settings, on_event=tell).run(
            signals=True, until_idle=until_idle
        )
    names = ("queue", "handled", "failed", "dead", "gone", "lost")
    context.emit_one({name: getattr(report, name) for name in names})

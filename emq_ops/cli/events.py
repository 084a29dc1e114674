"""``emq-ops events``: follow a queue's channel."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.following import tell_row, until_interrupted
from emq_ops.cli.options import QueueArg, new_app
from emq_ops.cli.output import counted, say
from emq_ops.cli.queues import require_queue
from emq_ops.cli.table import cell
from emq_ops.cli.values import duration_ms, now_ms
from emq_ops.protocol.connection.subscription import Subscription
from emq_ops.protocol.errors import BadInputError, UnreachableError
from emq_ops.protocol.keyspace import keys_of, queue_name

app = new_app()
WAIT_S = 0.25


@app.command()
def events(
    ctx: typer.Context,
    queue: QueueArg,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Until Ctrl-C.")] = False,
    seconds: Annotated[str | None, typer.Option("--for", help="For so long.", metavar="DURATION")] = None,
    count: Annotated[int | None, typer.Option("-n", "--count", help="Until so many came.", metavar="N", min=1)] = None,
) -> None:
    """Follow what a queue's workers publish: progress, cancellations, what batch workers settled.

    A channel keeps nothing: what was published before, and while the connection was away, is not shown. Each time that
    something may have been missed is told. Records of settled jobs are in `stream:completions`: `stream tail`.

    Examples:

      emq-ops events orders -f

      emq-ops events orders --for 10m --output jsonl
    """
    context, queue = CommandContext.of(ctx), queue_name(queue)
    end = float("inf") if seconds is None else time.monotonic() + duration_ms(seconds, "--for") / 1000
    told = 0
    with context.server("events") as server, until_interrupted():
        require_queue(context, queue, server)
        if not follow and seconds is None and count is None:
            raise BadInputError(
                "a channel keeps nothing that could be listed",
                where="events",
                fix=f"-f follows it; emq-ops stream read {queue} completions shows records of settled jobs",
            )
        with server.subscribe(keys_of(queue).events) as channel:
            say(f"{queue}: following; what was published before is not kept anywhere")
            missed = _Missed(channel)
            while time.monotonic() < end and (count is None or told < count):
                try:
                    message = channel.get(min(WAIT_S, max(end - time.monotonic(), 0.01)))
                except UnreachableError as fault:
                    missed.away(str(fault))
                    time.sleep(WAIT_S)
                    continue
                missed.look()
                if message is not None:
                    _tell(message.data, context.output)
                    told += 1
    say(f"{queue}: {counted(told, 'event')}" + missed.summary())


def _tell(data: bytes, output: str) -> None:
    """One event; what is no JSON object is shown as it came."""
    at = now_ms()
    try:
        found: Any = json.loads(data)
    except ValueError:
        found = None
    event = found if isinstance(found, dict) else {}
    rest = {name: value for name, value in event.items() if name not in ("event", "job")}
    row = {"at_ms": at, "event": event.get("event"), "job": event.get("job"), "rest": rest if event else data}
    more = " ".join(f"{name}={cell(value)}" for name, value in rest.items()) if event else cell(data)
    clock = datetime.fromtimestamp(at / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]
    tell_row(row, f"{clock}  {event.get('event') or '?'}  {event.get('job') or ''}  {more}".rstrip(), output)


class _Missed:
    """Tells when events may have been missed, from when on."""

    def __init__(self, channel: Subscription) -> None:
        self._channel = channel
        self._seen = self._times = 0
        self._well_ms = now_ms()
        self._away = False

    def away(self, why: str) -> None:
        if not self._away:
            say(f"connection lost: {why}; events meanwhile are missed")
        self._away = True

    def look(self) -> None:
        """After each wait for a message."""
        if self._channel.gaps > self._seen or self._away:
            self._times += 1
            self._seen, self._away = self._channel.gaps, False
            since = datetime.fromtimestamp(self._well_ms / 1000, UTC).strftime("%H:%M:%S")
            say(f"connected anew: events since {since} UTC may have been missed")
        self._well_ms = now_ms()

    def summary(self) -> str:
        return f"; some may have been missed {counted(self._times, 'time')}" if self._times else ""

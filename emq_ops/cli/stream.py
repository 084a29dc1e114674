"""``emq-ops stream``: see the event streams of a queue, read them, follow them, add to them."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.following import tell_row, until_interrupted
from emq_ops.cli.options import QueueArg, new_app
from emq_ops.cli.output import counted, say
from emq_ops.cli.queues import require_queue
from emq_ops.cli.stream_append import StreamName, append
from emq_ops.cli.table import cell
from emq_ops.cli.values import duration_ms, instant_ms
from emq_ops.overview.streams import StreamStanding, names, standing, standings
from emq_ops.overview.words import ago, span
from emq_ops.policy.words import nearest
from emq_ops.protocol import ids
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.keyspace import queue_name, stream_name
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.transitions import groups as consumer_groups
from emq_ops.protocol.transitions import streams
from emq_ops.protocol.transitions.streams import StreamRecord

app = new_app("See the event streams of a queue, read, follow, add to them.")
PAGE = 500
POLL_S = 0.25
_GROUP = ("group", "consumers", "pending", "lag", "oldest_ms", "last_delivered")


def _name(stream: str) -> str:
    return stream_name(stream.removeprefix("stream:"))


def _require(context: CommandContext, q: Queue, stream: str) -> None:
    """Raises BadInputError, with the nearest name, for a queue or a stream that is not there."""
    if not q.server.read("EXISTS", q.keys.stream(stream)):
        require_queue(context, q.name, q.server)
        near = nearest(stream, names(q))
        fix = f"did you mean {near}?" if near else f"see which there are: emq-ops stream ls {q.name}"
        raise BadInputError(f"no stream {stream}", where=q.name, fix=fix)


@app.command()
def ls(ctx: typer.Context, queue: QueueArg) -> None:
    """List the event streams of a queue: entries, ages, groups, how far they are archived.

    Examples:

      emq-ops stream ls orders

      emq-ops stream ls orders --output json
    """
    context, queue = CommandContext.of(ctx), queue_name(queue)
    with context.server("stream") as server:
        require_queue(context, queue, server)
        found, now = list(standings(Queue(server, queue))), server.now_ms(queue)
    rows = [_row(one) for one in found]
    if context.output == "table":
        for row in rows:
            row |= {name: ago(row[f"{name}_ms"], now) for name in ("first", "last", "archived")}
    context.emit_rows(rows, ("stream", "entries", "first", "last", "groups", "pending", "archived", "error"))
    say(f"{queue}: {counted(len(rows), 'stream')}")


def _row(one: StreamStanding) -> dict[str, Any]:
    return {
        "stream": one.stream,
        "entries": one.entries,
        "first_ms": one.first_ms,
        "last_ms": one.last_ms,
        "groups": len(one.groups),
        "pending": sum(group.pending for group in one.groups),
        "archived_ms": one.archived_ms,
        "error": one.error,
    }


@app.command()
def show(ctx: typer.Context, queue: QueueArg, stream: StreamName) -> None:
    """Show one stream: its ends, its watermark, its groups, and who holds it up.

    Examples:

      emq-ops stream show orders completions

      emq-ops stream show orders completions --output json
    """
    context, queue, stream = CommandContext.of(ctx), queue_name(queue), _name(stream)
    with context.server("stream") as server:
        q = Queue(server, queue)
        _require(context, q, stream)
        one, now = standing(q, stream), server.now_ms(queue)
    row: dict[str, Any] = {"queue": queue, **_row(one), "groups": [_group_row(group) for group in one.groups]}
    row |= {"first": one.first, "last": one.last, "last_generated": one.last_generated, "added": one.added}
    row["archived"] = one.archived
    if context.output == "table":
        row |= {name: ago(row[name], now) for name in ("first_ms", "last_ms", "archived_ms")}
        row["groups"] = "; ".join(_group_text(group) for group in one.groups)
    context.emit_one(row)


def _group_row(group: consumer_groups.StreamGroup) -> dict[str, Any]:
    return {
        "group": group.name,
        "consumers": group.consumers,
        "pending": group.pending,
        "lag": group.lag,
        "oldest_ms": group.oldest_ms,
        "last_delivered": group.last_delivered,
    }


def _group_text(group: consumer_groups.StreamGroup) -> str:
    idle = f", idle for {span(group.oldest_ms)}" if group.oldest_ms is not None else ""
    lag = "unknown" if group.lag is None else group.lag
    return f"{group.name}: {group.pending} pending{idle}, {lag} not delivered"


@app.command()
def groups(ctx: typer.Context, queue: QueueArg, stream: StreamName) -> None:
    """List the consumer groups of a stream: what they have pending, since when, and what they were not given yet.

    Examples:

      emq-ops stream groups orders completions

      emq-ops stream groups orders completions --output json
    """
    context, queue, stream = CommandContext.of(ctx), queue_name(queue), _name(stream)
    with context.server("stream") as server:
        q = Queue(server, queue)
        _require(context, q, stream)
        rows = [_group_row(group) for group in consumer_groups.listing(q, stream)]
    context.emit_rows(rows, _GROUP)
    say(f"{queue} {stream}: {counted(len(rows), 'group')}")


@app.command()
def read(
    ctx: typer.Context,
    queue: QueueArg,
    stream: StreamName,
    first: Annotated[
        str | None, typer.Option("--from", help="First id, EVT id, unix ms or time.", metavar="WHEN")
    ] = None,
    last: Annotated[str | None, typer.Option("--to", help="Last one, inclusive.", metavar="WHEN")] = None,
    since: Annotated[str | None, typer.Option(help="The last 10m.", metavar="DURATION")] = None,
    limit: Annotated[int | None, typer.Option(help="At most so many.", metavar="N", min=1)] = None,
) -> None:
    """Print the records that stand in a stream, oldest first. What was trimmed is in the archive: `archive read`.

    Examples:

      emq-ops stream read orders completions --since 10m

      emq-ops stream read orders completions --from EVT0SS8QFjgi3i --limit 20 --output jsonl
    """
    context, queue, stream = CommandContext.of(ctx), queue_name(queue), _name(stream)
    if since is not None and first is not None:
        raise BadInputError("--since and --from both say where it begins", where="stream read", fix="give one")
    start, end, back = _place(first, last=False), _place(last, last=True), duration_ms(since, "--since")
    with context.server("stream") as server:
        q = Queue(server, queue)
        _require(context, q, stream)
        if back is not None:
            start = ids.floor_stream_id(max(server.now_ms(queue) - back, 0))
        shown = (_shown(one, context.output) for one in _records(q, stream, start or "-", end or "+", limit))
        context.emit_rows(shown, ("stream_id", "evt", "fields"))


def _place(text: str | None, *, last: bool) -> str | None:
    """A place in a stream, as a stream id. Raises BadInputError."""
    if text is None or re.fullmatch(r"\d+-\d+", text):
        return text
    if text.startswith("EVT"):
        return ids.parse(text).stream_id
    ms = int(text) if re.fullmatch(r"\d{1,15}", text) else instant_ms(text, "--to" if last else "--from")
    return ids.ceil_stream_id(ms) if last else ids.floor_stream_id(ms)


def _records(q: Queue, stream: str, start: str, end: str, limit: int | None) -> Iterator[StreamRecord]:
    """From one id to another, page by page."""
    left = limit
    while left is None or left > 0:
        count = PAGE if left is None else min(left, PAGE)
        page = streams.read(q, stream, start, end, count=count)
        yield from page
        if len(page) < count:
            return
        start = f"({page[-1].stream_id}"
        left = None if left is None else left - len(page)


def _shown(one: StreamRecord, output: str) -> dict[str, Any]:
    row: dict[str, Any] = {"stream_id": one.stream_id, "evt": one.event or None}
    if output in ("table", "csv"):
        return {**row, "fields": _text(one)}
    return {**row, "fields": [[name, value] for name, value in one.fields]}


def _text(one: StreamRecord) -> str:
    return " ".join(f"{cell(name)}={cell(value)}" for name, value in one.fields)


@app.command()
def tail(
    ctx: typer.Context,
    queue: QueueArg,
    stream: StreamName,
    count: Annotated[int, typer.Option("-n", "--count", help="The last so many first.", metavar="N", min=0)] = 10,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Then what comes, until Ctrl-C.")] = False,
    seconds: Annotated[str | None, typer.Option("--for", help="With -f: for so long.", metavar="DURATION")] = None,
) -> None:
    """Print the last records of a stream, and with -f those that come. Nothing is missed, unless it is trimmed at once.

    Examples:

      emq-ops stream tail orders completions -f

      emq-ops stream tail orders completions -n 100 --output jsonl
    """
    context, queue, stream = CommandContext.of(ctx), queue_name(queue), _name(stream)
    end = time.monotonic() + duration_ms(seconds, "--for") / 1000 if seconds is not None else float("inf")
    with context.server("stream") as server, until_interrupted():
        q = Queue(server, queue)
        if not follow:
            _require(context, q, stream)
        key = q.keys.stream(stream)
        newest = server.read("XREVRANGE", key, "+", "-", "COUNT", max(count, 1))
        seen = newest[0][0].decode("ascii") if newest else "0-0"
        for entry_id, flat in reversed(newest[:count]):
            _tell(streams.record(entry_id, flat), context.output)
        while follow and time.monotonic() < end:
            page = streams.read(q, stream, f"({seen}", count=PAGE)
            for one in page:
                _tell(one, context.output)
                seen = one.stream_id
            if not page:
                time.sleep(POLL_S)


def _tell(one: StreamRecord, output: str) -> None:
    tell_row(_shown(one, output), f"{one.stream_id}  {one.event}  {_text(one)}", output)


app.command()(append)

"""``emq-ops stream append``: records from the shell."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.options import QueueArg
from emq_ops.cli.output import emit_one, say
from emq_ops.cli.queues import is_new
from emq_ops.protocol.errors import BadInputError, EmqError
from emq_ops.protocol.keyspace import queue_name, stream_name
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.transitions import streams

StreamName = Annotated[str, typer.Argument(help="The stream.", metavar="STREAM")]


def append(
    ctx: typer.Context,
    queue: QueueArg,
    stream: StreamName,
    fields: Annotated[
        list[str] | None, typer.Argument(help="A field of the record, NAME=VALUE.", metavar="FIELD")
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="Records, a JSON object of texts a line; - reads stdin.", metavar="FILE")
    ] = None,
    new: Annotated[bool, typer.Option("--new", help="A new queue, though another has a name like it.")] = False,
) -> None:
    """Add records to a stream, and print their ids. Exit 1 where some were refused: each of these is named.

    Ids are settled on the server, above whatever the stream has generated.

    Examples:

      emq-ops stream append orders audit who=ada what=refund

      emq-ops stream append orders audit --file records.jsonl
    """
    context, queue, stream = CommandContext.of(ctx), queue_name(queue), stream_name(stream.removeprefix("stream:"))
    records = _given(fields or [], file)
    with context.server("worker") as server:
        if not new and is_new(context, queue, server):
            say(f"emq-ops: {queue} is a new queue; this is its first record")
        told = streams.append_each(Queue(server, queue), stream, records)
    written = [one for one in told if not isinstance(one, EmqError)]
    refused = [(place, one) for place, one in enumerate(told, 1) if isinstance(one, EmqError)]
    if context.output == "table":
        sys.stdout.write("".join(f"{event}\n" for event in written))
    else:
        rows = [{"place": place, "why": str(fault)} for place, fault in refused]
        emit_one({"queue": queue, "stream": stream, "written": written, "refused": rows}, context.output)
    for place, fault in refused[:10]:
        say(f"record {place} was not written: {fault}")
    if refused:
        say(f"{len(refused)} of {len(told)} records were not written")
        raise typer.Exit(1)


def _given(fields: Sequence[str], file: Path | None) -> list[list[tuple[str, str]]]:
    """The records of the command line. Raises BadInputError that names the field or line."""
    if bool(fields) == (file is not None):
        what = "two sources of records" if fields else "no record"
        raise BadInputError(what, where="stream append", fix="give NAME=VALUE, or --file FILE")
    if file is None:
        return [[_pair(text) for text in fields]]
    try:
        lines = (sys.stdin.read() if str(file) == "-" else file.read_text("utf-8")).splitlines()
    except (OSError, UnicodeError) as fault:
        raise BadInputError(f"can't be read: {fault}", where=str(file)) from None
    records = [_line(text, f"{file}:{place}") for place, text in enumerate(lines, 1) if text.strip()]
    if not records:
        raise BadInputError("no records", where=str(file), fix="a JSON object a line")
    return records


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise BadInputError(f"'{text}' is no field", where="stream append", fix="NAME=VALUE")
    return name, value


def _line(text: str, where: str) -> list[tuple[str, str]]:
    try:
        found = json.loads(text)
    except ValueError as fault:
        raise BadInputError(f"is not JSON: {fault}", where=where) from None
    if not isinstance(found, dict) or not found or not all(isinstance(value, str) for value in found.values()):
        raise BadInputError("is no record", where=where, fix='an object of texts: {"who": "ada"}')
    return list(found.items())

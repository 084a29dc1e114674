"""``emq-ops hold``: no pass runs on a queue for a while."""

from __future__ import annotations

from typing import Annotated

import typer

from emq_ops.cli.context import globals_of, new_app
from emq_ops.cli.output import emit_one, emit_rows
from emq_ops.cli.passing import Passing, span, warn_of_absence
from emq_ops.ledger import holds
from emq_ops.ledger.holds import Hold
from emq_ops.passes.lease.holder import who
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.keyspace import queue_name

app = new_app()


@app.command()
def hold(
    ctx: typer.Context,
    queue: Annotated[str | None, typer.Argument(help="The queue; without, the holds are listed.")] = None,
    length: Annotated[str | None, typer.Option("--for", help="How long (2h).", metavar="DURATION")] = None,
    why: Annotated[str, typer.Option(help="For whoever asks.")] = "",
) -> None:
    """Hold a queue: until then, or until `release`, no sweep, trim or archive pass runs on it, a daemon's included."""
    options = globals_of(ctx)
    passing = Passing.of(options)
    if queue is None:
        with passing.ledger() as ledger:
            rows = [found.as_row() for found in holds.all_holds(ledger)]
        emit_rows(rows, options.output, ("queue", "since_ms", "until_ms", "holder", "why"))
        return
    queue = queue_name(queue)
    ms = span(length, "--for")
    if not ms:
        raise BadInputError("for how long?", where="hold", fix="--for 2h")
    with passing.server("hold") as server, passing.ledger() as ledger:
        warn_of_absence(server, queue, passing.parts.loaded)
        now = server.now_ms(queue)
        wanted = Hold(queue, now, now + ms, who(), why)
        holds.hold(ledger, wanted)
    emit_one(wanted.as_row(), options.output)

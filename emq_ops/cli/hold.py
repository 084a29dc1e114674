"""``emq-ops hold``: no pass runs on a queue for a while."""

from __future__ import annotations

from typing import Annotated

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.options import new_app
from emq_ops.cli.queues import require_queue
from emq_ops.cli.values import duration_ms
from emq_ops.ledger import holds
from emq_ops.ledger.holds import Hold
from emq_ops.passes.lease.holder import who
from emq_ops.passes.lease.owner import check_owner
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
    """Hold a queue: for that long, or until `release`, no pass runs on it, by a daemon or by hand."""
    context = CommandContext.of(ctx)
    if queue is None:
        with context.ledger() as ledger:
            rows = [found.as_row() for found in holds.all_holds(ledger)]
        context.emit_rows(rows, ("queue", "since_ms", "until_ms", "holder", "why"))
        return
    queue = queue_name(queue)
    ms = duration_ms(length, "--for")
    if not ms:
        raise BadInputError("for how long?", where="hold", fix="--for 2h")
    with context.server("hold") as server, context.ledger() as ledger:
        check_owner(server, queue, ledger)
        require_queue(context, queue, server)
        now = server.now_ms(queue)
        wanted = Hold(queue, now, now + ms, who(), why)
        holds.hold(ledger, wanted)
    context.emit_one(wanted.as_row())

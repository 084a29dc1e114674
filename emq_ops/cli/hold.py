"""``emq-ops hold``: no pass runs on a queue for a while."""

from __future__ import annotations

from typing import Annotated

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.many import QueueTurns, several
from emq_ops.cli.options import new_app
from emq_ops.cli.queues import pick
from emq_ops.cli.values import duration_ms
from emq_ops.ledger import holds
from emq_ops.ledger.holds import Hold
from emq_ops.passes.lease.holder import who
from emq_ops.passes.lease.owner import check_owner
from emq_ops.protocol.errors import BadInputError

app = new_app()
COLUMNS = ("queue", "since_ms", "until_ms", "holder", "why")


@app.command()
def hold(
    ctx: typer.Context,
    queues: Annotated[
        list[str] | None, typer.Argument(help="Queues or globs; without, the holds are listed.", metavar="QUEUE")
    ] = None,
    length: Annotated[str | None, typer.Option("--for", help="How long (2h).", metavar="DURATION")] = None,
    why: Annotated[str, typer.Option(help="For whoever asks.")] = "",
) -> None:
    """Hold queues: for that long, or until `release`, no pass runs on them, by a daemon or by hand.

    Examples:

      emq-ops hold orders --for 2h --why 'moving hosts'

      emq-ops hold 'mail-*' --for 30m
    """
    context = CommandContext.of(ctx)
    if not queues:
        with context.ledger() as ledger:
            rows = [found.as_row() for found in holds.all_holds(ledger)]
        context.emit_rows(rows, COLUMNS)
        return
    ms = duration_ms(length, "--for")
    if not ms:
        raise BadInputError("for how long?", where="hold", fix="--for 2h")
    with context.server("hold") as server, context.ledger() as ledger:
        names = pick(context, queues, server)
        with QueueTurns(context, COLUMNS, many=several(queues, names)) as turns:
            for queue in names:
                with turns.turn():
                    check_owner(server, queue, ledger)
                    now = server.now_ms(queue)
                    wanted = Hold(queue, now, now + ms, who(), why)
                    holds.hold(ledger, wanted)
                    turns.add(wanted.as_row())

"""``emq-ops release``: ends a hold; with ``--disown``, as ``emq-ops state take-over``."""

from __future__ import annotations

from typing import Annotated

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.many import QueueTurns, several
from emq_ops.cli.options import QueuesArg, new_app
from emq_ops.cli.output import say
from emq_ops.cli.queues import pick
from emq_ops.cli.take_over import take_over_state
from emq_ops.ledger import holds
from emq_ops.passes.lease.owner import check_owner, lease_info
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.keyspace import queue_name

app = new_app()


@app.command()
def release(
    ctx: typer.Context,
    queues: QueuesArg,
    disown: Annotated[
        str | None,
        typer.Option(help="The state that owns the queue and is lost: all of it is taken over.", metavar="UUID"),
    ] = None,
) -> None:
    """End the hold of queues. With --disown, as `emq-ops state take-over`.

    Examples:

      emq-ops release orders

      emq-ops release 'mail-*'
    """
    context = CommandContext.of(ctx)
    if disown is not None:
        if len(queues) > 1:
            raise BadInputError("--disown is of one queue", fix="all of the state's queues are taken over by it")
        queue = queue_name(queues[0])
        with context.server("release") as server:
            found = lease_info(server, queue)
        if found is None or found.state != disown:
            owner = f"state {found.state}" if found is not None else "nobody"
            raise BadInputError(f"the queue belongs to {owner}, not to {disown}", where=queue)
        take_over_state(context, disown, yes=True)
        return
    with context.server("release") as server, context.ledger() as ledger:
        held = {found.queue for found in holds.all_holds(ledger)}
        names = pick(context, queues, server, held)
        with QueueTurns(context, ("queue", "released"), many=several(queues, names)) as turns:
            for queue in names:
                with turns.turn():
                    check_owner(server, queue, ledger)
                    released = holds.release(ledger, queue)
                    turns.add({"queue": queue, "released": released})
                    if not released:
                        say(f"emq-ops: {queue}: was not held (`emq-ops hold` lists what is)")

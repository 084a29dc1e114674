"""``emq-ops release``: ends a hold; with ``--disown``, takes a queue from a state whose database is lost."""

from __future__ import annotations

from typing import Annotated

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.options import new_app
from emq_ops.cli.output import say
from emq_ops.ledger import holds
from emq_ops.passes.lease.owner import lease_info
from emq_ops.passes.lease.queue_lease import QueueLease
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.keyspace import queue_name

app = new_app()


@app.command()
def release(
    ctx: typer.Context,
    queue: Annotated[str, typer.Argument(help="The queue.")],
    disown: Annotated[
        str | None,
        typer.Option(help="The state that owns the queue and is lost; ours takes its place.", metavar="UUID"),
    ] = None,
) -> None:
    """End the hold of a queue.

    With --disown, this state takes over a queue whose state database is gone for good. It is refused while a process
    of that state still leads the queue.
    """
    context, queue = CommandContext.of(ctx), queue_name(queue)
    with context.server("release") as server, context.ledger() as ledger:
        if disown is None:
            released = holds.release(ledger, queue)
            context.emit_one({"queue": queue, "released": released})
            if not released:
                say(f"emq-ops: {queue}: was not held (`emq-ops hold` lists what is)")
            return
        found = lease_info(server, queue)
        if found is None or found.state != disown:
            owner = f"state {found.state}" if found is not None else "nobody"
            raise BadInputError(f"the queue belongs to {owner}, not to {disown}", where=queue)
        leadership = QueueLease(server, ledger, queue)
        fence = leadership.try_acquire(disown=disown)
        leadership.release()
    context.emit_one({"queue": queue, "state": ledger.state, "was": disown, "token": fence.token})

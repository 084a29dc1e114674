"""``emq-ops worker ls``: who works, as far as the wire tells."""

from __future__ import annotations

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.options import SomeQueues
from emq_ops.cli.output import say
from emq_ops.cli.queues import pick
from emq_ops.overview.words import ago
from emq_ops.overview.workers import parked, workers_of
from emq_ops.protocol.errors import one_line


def ls(ctx: typer.Context, queues: SomeQueues = None) -> None:
    """List who works: leases by queue, and the clients that are parked until something is to claim.

    The wire does not say which worker holds which lease, nor for which queue a parked client waits.

    Examples:

      emq-ops worker ls orders

      emq-ops worker ls --output json
    """
    context = CommandContext.of(ctx)
    with context.server("worker") as server:
        names = pick(context, queues or (), server)
        found = workers_of(server, names)
        nodes = [some[0] for some in server.shards(names)]
        clients = [parked(server, queue) for queue in nodes]
    waiting = [client for some, _ in clients for client in some]
    rows = [
        {
            "queue": one.queue,
            "in_flight": one.in_flight,
            "lapsed": one.lapsed,
            "next_deadline": ago(one.first_ms, one.now_ms),
            "last_deadline": ago(one.last_ms, one.now_ms),
        }
        for one in found
    ]
    if context.output == "json":
        told = [{name: getattr(client, name) for name in client.__slots__} for client in waiting]
        context.emit_one({"queues": rows, "parked": told})
        return
    context.emit_rows(rows, ("queue", "in_flight", "lapsed", "next_deadline", "last_deadline"))
    for _, fault in clients:
        if fault:
            say(f"note: who is parked can't be told: {one_line(fault)}")
    say(f"{len(waiting)} parked" + "".join(f"; {one_line(client.name or client.address)}" for client in waiting[:10]))

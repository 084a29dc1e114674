"""``emq-ops sweep``: one stalled sweep of a queue."""

from __future__ import annotations

from typing import Annotated

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.options import DryRun, QueuesArg, new_app
from emq_ops.cli.passing import ByHand, run_by_hand, with_given
from emq_ops.cli.values import duration_ms
from emq_ops.passes.frame.order import Order
from emq_ops.passes.sweep.declared import SWEEP
from emq_ops.policy.models import StalledPolicy

app = new_app()


@app.command()
def sweep(
    ctx: typer.Context,
    queues: QueuesArg,
    max_stalled: Annotated[int | None, typer.Option(help="The stall that dead-letters.", min=1)] = None,
    limit: Annotated[int | None, typer.Option(help="Leases a slice.", min=1)] = None,
    restart: Annotated[str | None, typer.Option(help="Whether leases of an interruption count.")] = None,
    lease: Annotated[str | None, typer.Option(help="The queue's longest lease (30s).", metavar="DURATION")] = None,
    max_exempt: Annotated[int | None, typer.Option(help="Exemptions in a row of one job.", min=0)] = None,
    executor: Annotated[str | None, typer.Option(help="Scripts, or the module's commands.")] = None,
    max_removals: Annotated[int | None, typer.Option(help="Stop if more would be dead-lettered.", min=0)] = None,
    max_share: Annotated[float | None, typer.Option(help="The same, as a share of what is active (0.2).")] = None,
    timeout: Annotated[
        str | None, typer.Option(help="End in time; the next sweep goes on (30s).", metavar="DURATION")
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Recover lapsed leases of queues, and dead-letter what stalled too often.

    The policy is the config's, with the flags over it. Waits for the queue's lease; beside a live daemon the daemon
    runs it, and its report is shown. Exit 1: a queue is held, a guard stopped the pass, or the time ran out.

    Examples:

      emq-ops sweep orders --dry-run

      emq-ops sweep 'mail-*' orders --max-stalled 3
    """
    context = CommandContext.of(ctx)
    given: dict[str, object] = {
        "max_stalled": max_stalled,
        "limit": limit,
        "restart": restart,
        "lease_ms": duration_ms(lease, "--lease"),
    }
    given |= {"max_exempt": max_exempt, "executor": executor, "max_removals": max_removals, "max_share": max_share}

    def order_of(queue: str, _stream: str) -> Order:
        policy: StalledPolicy = with_given(context.stalled(queue), given)
        return Order(queue, policy, lease_ms=policy.lease_ms)

    run_by_hand(context, SWEEP, queues, ByHand(order_of, timeout, dry_run))

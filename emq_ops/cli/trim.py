"""``emq-ops trim``: one trim of a queue's dead jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.options import QueuesArg, Yes, new_app
from emq_ops.cli.passing import ByHand, run_by_hand, with_given
from emq_ops.cli.values import duration_ms
from emq_ops.passes.frame.order import Order
from emq_ops.passes.trim.declared import TRIM
from emq_ops.policy.models import DeadPolicy

app = new_app()


@app.command()
def trim(
    ctx: typer.Context,
    queues: QueuesArg,
    keep: Annotated[int | None, typer.Option(help="Exactly this many dead jobs stay.", min=0)] = None,
    max_age: Annotated[str | None, typer.Option(help="Older ones go (30d).", metavar="DURATION")] = None,
    age_by: Annotated[str | None, typer.Option(help="Age since first seen dead, or minted.")] = None,
    archive: Annotated[
        bool | None, typer.Option("--archive/--no-archive", help="Into the archive first, or not.")
    ] = None,
    max_removals: Annotated[int | None, typer.Option(help="Remove nothing if more would go.", min=0)] = None,
    timeout: Annotated[
        str | None, typer.Option(help="End in time; the next trim goes on (30s).", metavar="DURATION")
    ] = None,
    yes: Yes = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the victims; change nothing.")] = False,
) -> None:
    """Delete dead jobs beyond what the policy keeps, each with its row, logs and flow books.

    The policy is the config's; --keep and --max-age replace both of its bounds, and are asked about. Held jobs and flow
    parents with open children are skipped and reported; the parent of a flow child hears that it is gone. Beside a live
    daemon the daemon runs it. Exit 1: the queue is held or protected, a guard stopped the pass, or the time ran out.

    Examples:

      emq-ops trim orders --dry-run

      emq-ops trim 'mail-*' --keep 1000 --yes
    """
    context, applied = CommandContext.of(ctx), keep is None and max_age is None
    age_ms = duration_ms(max_age, "--max-age")

    def order_of(queue: str, _stream: str) -> Order:
        policy: DeadPolicy = context.dead(queue)
        if not applied:
            policy = replace(policy, keep=keep, max_age_ms=age_ms)
        policy = with_given(policy, {"age_by": age_by, "archive": archive, "max_removals": max_removals})
        return Order(queue, policy, applied=applied, lease_ms=context.stalled(queue).lease_ms)

    # What the config says was looked at when it was applied; anything else is this command's own word.
    own = not applied or age_by is not None or archive is not None or max_removals is not None
    bounds = " and ".join(
        words
        for words in (
            "" if keep is None else f"beyond the newest {keep:,}",
            "" if max_age is None else f"older than {max_age}",
            "without archiving them" if archive is False else "",
        )
        if words
    )
    sure = yes or (False if own else None)
    asked = f"Delete the dead jobs of {{}} {bounds or 'that this line and the config let go'}?"
    run_by_hand(context, TRIM, queues, ByHand(order_of, timeout, dry_run, sure, asked))

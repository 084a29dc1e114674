"""``emq-ops lane``: see the lanes of a queue, bound them, stop them."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Annotated

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.lane_show import LaneArg, picked
from emq_ops.cli.many import QueueTurns, several
from emq_ops.cli.options import DryRun, SomeOfQueues, Why
from emq_ops.cli.output import say
from emq_ops.cli.pausing import pause_all, set_beside
from emq_ops.passes.acts.declared import LIMIT_LANE, PAUSE, RESUME, WEIGHT_LANE, LanePolicy, WeightPolicy
from emq_ops.passes.acts.lives import order_of
from emq_ops.passes.acts.options import ActOptions
from emq_ops.passes.frame.context import Services
from emq_ops.passes.frame.contract import Pass
from emq_ops.passes.frame.frame import predict_pass

LanesArg = Annotated[list[str], typer.Argument(help="Lanes, by their GRP ids, or globs.", metavar="LANE")]


def limit(
    ctx: typer.Context,
    queue: SomeOfQueues,
    lane: LaneArg,
    most: Annotated[int, typer.Argument(help="Jobs in flight at once; 0 takes the limit away.", metavar="N", min=0)],
    why: Why = "",
    dry_run: DryRun = False,
) -> None:
    """Set how many jobs of a lane may be in flight at once.

    Examples:

      emq-ops lane limit orders GRP0SS8QFjgi3i 2 --why 'their API is slow'

      emq-ops lane limit 'mail-*' GRP0SS8QFjgi3i 0
    """
    _set_number(ctx, LIMIT_LANE, queue, lane, LanePolicy(why=why, limit=most), dry_run)


def weight(
    ctx: typer.Context,
    queue: SomeOfQueues,
    lane: LaneArg,
    number: Annotated[int, typer.Argument(help="Jobs a turn; 0 takes the weight away (one).", metavar="N", min=0)],
    why: Why = "",
    dry_run: DryRun = False,
) -> None:
    """Set how many jobs of a lane are claimed each time that its turn comes.

    Workers of emq-ops go by it; EchoMQ's own take one, unless they claim by weight.

    Examples:

      emq-ops lane weight orders GRP0SS8QFjgi3i 5 --why 'a large customer'

      emq-ops lane weight 'mail-*' GRP0SS8QFjgi3i 0
    """
    _set_number(ctx, WEIGHT_LANE, queue, lane, WeightPolicy(why=why, weight=number), dry_run)


def _set_number(
    ctx: typer.Context, what: Pass, queue: str, lane: str, policy: LanePolicy | WeightPolicy, dry_run: bool
) -> None:
    context, name = CommandContext.of(ctx), what.name.removesuffix("_lane")
    wanted = getattr(policy, name)
    with context.server("lane") as server, contextlib.ExitStack() as stack:
        ledger = None if dry_run else stack.enter_context(context.ledger())
        pairs = picked(context, server, queue, [lane], new=True)
        turns = stack.enter_context(
            QueueTurns(context, ("queue", "lane", name, "was", "run"), many=several([queue, lane], pairs))
        )
        for found_queue, found in pairs:
            order = order_of(found_queue, replace(policy, lane=found), ActOptions())
            if ledger is None:
                report = predict_pass(Services(server, None), what, order).report
            else:
                report = set_beside(server, ledger, what, order)
            told = f"{found_queue} {found}: {name} {wanted or 'none'}, was {report.was or 'none'}"
            if report.run:
                say(f"{told} (run {report.run}; back: emq-ops lane {name} {found_queue} {found} {report.was})")
            else:
                say(f"{told}; nothing was changed")
            if context.output != "table":
                with turns.turn():
                    turns.add(report.as_row())


def pause(ctx: typer.Context, queue: SomeOfQueues, lane: LanesArg, why: Why = "", dry_run: DryRun = False) -> None:
    """Stop lanes: nothing is claimed from them; what is in flight goes on.

    Examples:

      emq-ops lane pause orders GRP0SS8QFjgi3i --why 'tenant asked'

      emq-ops lane pause 'mail-*' GRP0SS8QFjgi3i --dry-run
    """
    _pause(ctx, PAUSE, queue, lane, why, dry_run)


def resume(ctx: typer.Context, queue: SomeOfQueues, lane: LanesArg, why: Why = "", dry_run: DryRun = False) -> None:
    """Let paused lanes go on.

    Examples:

      emq-ops lane resume orders GRP0SS8QFjgi3i

      emq-ops lane resume orders '*'
    """
    _pause(ctx, RESUME, queue, lane, why, dry_run)


def _pause(ctx: typer.Context, what: Pass, queue: str, wanted: list[str], why: str, dry_run: bool) -> None:
    context = CommandContext.of(ctx)
    with context.server("lane") as server:
        pause_all(context, server, what, picked(context, server, queue, wanted), why=why, dry_run=dry_run)

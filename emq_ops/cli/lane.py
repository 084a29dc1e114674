"""``emq-ops lane``: see the lanes of a queue, bound them, stop them."""

from __future__ import annotations

import contextlib
import difflib
from typing import Annotated, Any

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.options import DryRun, QueueArg, Why, new_app
from emq_ops.cli.output import counted, say
from emq_ops.cli.pausing import pause_all, set_beside
from emq_ops.cli.queues import require_queue
from emq_ops.overview.detail import by_need, lane_row
from emq_ops.overview.words import ago
from emq_ops.passes.acts.declared import LIMIT_LANE, PAUSE, RESUME, LanePolicy
from emq_ops.passes.acts.lives import order_of
from emq_ops.passes.acts.options import ActOptions
from emq_ops.passes.frame.context import Services
from emq_ops.passes.frame.contract import Pass
from emq_ops.passes.frame.frame import predict_pass
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.ids import group_id, is_valid, parse
from emq_ops.protocol.keyspace import queue_name
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions.reads import Lane, lanes

app = new_app("See the lanes of a queue, bound them, stop them.")
LaneArg = Annotated[str, typer.Argument(help="The lane, by its GRP id.", metavar="LANE")]
LanesArg = Annotated[list[str], typer.Argument(help="Lanes, by their GRP ids.", metavar="LANE")]
COLUMNS = ("lane", "waiting", "in_flight", "limit", "weight", "paused", "on_ring")


@app.command()
def ls(ctx: typer.Context, queue: QueueArg) -> None:
    """List the lanes of a queue, those first in which most jobs wait.

    Examples:

      emq-ops lane ls orders

      emq-ops lane ls orders --output csv
    """
    context, queue = CommandContext.of(ctx), queue_name(queue)
    with context.server("lane") as server:
        require_queue(context, queue, server)
        rows = _rows(server, queue)
    context.emit_rows(rows, COLUMNS)
    say(f"{queue}: {counted(len(rows), 'lane')}")


def _rows(server: Server, queue: str) -> list[dict[str, Any]]:
    q = Queue(server, queue)
    flat = server.read("HGETALL", q.keys.gweight)
    weights = {name.decode("utf-8", "replace"): value for name, value in zip(flat[::2], flat[1::2], strict=True)}
    return [lane_row(one) | {"weight": weights.get(one.group)} for one in by_need(lanes(q))]


@app.command()
def show(ctx: typer.Context, queue: QueueArg, lane: LaneArg) -> None:
    """Show one lane: what waits in it, since when, and why nobody takes it, if nobody does.

    Examples:

      emq-ops lane show orders GRP0SS8QFjgi3i

      emq-ops lane show orders GRP0SS8QFjgi3i --output json
    """
    context, queue = CommandContext.of(ctx), queue_name(queue)
    with context.server("lane") as server:
        require_queue(context, queue, server)
        _require_lanes(server, queue, [lane])
        q = Queue(server, queue)
        row = next(one for one in _rows(server, queue) if one["lane"] == lane)
        first = server.read("ZRANGE", q.keys.lane(lane), 0, 0)
        now = server.now_ms(queue)
    oldest = parse(first[0].decode()).unix_ms if first and is_valid(first[0]) else None
    row["oldest_minted_ms"] = oldest
    if context.output == "table":
        row["oldest_minted_ms"] = ago(oldest, now)
    context.emit_one({"queue": queue, **row})
    for hint in _hints(queue, row):
        say(hint)


def _hints(queue: str, row: dict[str, Any]) -> list[str]:
    lane = row["lane"]
    if row["paused"]:
        return [f"it is paused: emq-ops lane resume {queue} {lane}"]
    if row["limit"] is not None and row["in_flight"] >= row["limit"]:
        return [f"it is at its limit: emq-ops lane limit {queue} {lane} {row['limit'] + 1}"]
    if row["waiting"] and not row["on_ring"]:
        return [f"it has work and is not on the ring, so nobody claims it: emq-ops doctor {queue} --fix"]
    return []


@app.command()
def limit(
    ctx: typer.Context,
    queue: QueueArg,
    lane: LaneArg,
    most: Annotated[int, typer.Argument(help="Jobs in flight at once; 0 takes the limit away.", metavar="N", min=0)],
    why: Why = "",
    dry_run: DryRun = False,
) -> None:
    """Set how many jobs of a lane may be in flight at once.

    Examples:

      emq-ops lane limit orders GRP0SS8QFjgi3i 2 --why 'their API is slow'

      emq-ops lane limit orders GRP0SS8QFjgi3i 0
    """
    context, queue = CommandContext.of(ctx), queue_name(queue)
    with context.server("lane") as server, contextlib.ExitStack() as stack:
        require_queue(context, queue, server)
        lane = group_id(lane)
        order = order_of(queue, LanePolicy(why=why, lane=lane, limit=most), ActOptions())
        if dry_run:
            report = predict_pass(Services(server, None), LIMIT_LANE, order).report
        else:
            ledger = stack.enter_context(context.ledger())
            report = set_beside(server, ledger, LIMIT_LANE, order)
    told = f"{queue} {lane}: limit {most or 'none'}, was {report.was or 'none'}"
    if dry_run or not report.run:
        say(f"{told}; nothing was changed")
    else:
        say(f"{told} (run {report.run}; back: emq-ops lane limit {queue} {lane} {report.was})")
    if context.output != "table":
        context.emit_one(report.as_row())


@app.command()
def pause(ctx: typer.Context, queue: QueueArg, lane: LanesArg, why: Why = "", dry_run: DryRun = False) -> None:
    """Stop lanes: nothing is claimed from them; what is in flight goes on.

    Examples:

      emq-ops lane pause orders GRP0SS8QFjgi3i --why 'tenant asked'

      emq-ops lane pause orders GRP0SS8QFjgi3i --dry-run
    """
    _pause(ctx, PAUSE, queue, lane, why, dry_run)


@app.command()
def resume(ctx: typer.Context, queue: QueueArg, lane: LanesArg, why: Why = "", dry_run: DryRun = False) -> None:
    """Let paused lanes go on.

    Examples:

      emq-ops lane resume orders GRP0SS8QFjgi3i

      emq-ops lane resume orders GRP0SS8QFjgi3i --dry-run
    """
    _pause(ctx, RESUME, queue, lane, why, dry_run)


def _pause(ctx: typer.Context, what: Pass, queue: str, wanted: list[str], why: str, dry_run: bool) -> None:
    context, queue = CommandContext.of(ctx), queue_name(queue)
    with context.server("lane") as server:
        require_queue(context, queue, server)
        _require_lanes(server, queue, wanted)
        pause_all(context, server, what, [queue], lanes=wanted, why=why, dry_run=dry_run)


def _require_lanes(server: Server, queue: str, wanted: list[str]) -> list[Lane]:
    """Raises BadInputError, with the nearest name, for a lane that is not there."""
    known = lanes(Queue(server, queue))
    names = {one.group for one in known}
    for lane in wanted:
        if group_id(lane) not in names:
            near = next(iter(difflib.get_close_matches(lane, names, 1)), None)
            raise BadInputError(
                f"no lane {lane}",
                where=queue,
                fix=f"did you mean {near}?" if near else f"see which there are: emq-ops lane ls {queue}",
            )
    return known

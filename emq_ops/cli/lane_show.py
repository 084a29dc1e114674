"""``emq-ops lane ls|show``: the lanes of a queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.many import QueueTurns, several
from emq_ops.cli.options import QueuesArg, SomeOfQueues
from emq_ops.cli.output import counted, say
from emq_ops.cli.queues import pick
from emq_ops.overview.detail import by_need, lane_row
from emq_ops.overview.words import ago
from emq_ops.policy.words import near_names
from emq_ops.protocol.errors import BadInputError, one_line
from emq_ops.protocol.globs import is_glob, matches
from emq_ops.protocol.ids import group_id, is_valid, parse
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions.reads import lanes

LaneArg = Annotated[str, typer.Argument(help="The lane, by its GRP id, or a glob.", metavar="LANE")]
COLUMNS = ("lane", "waiting", "in_flight", "limit", "weight", "paused", "on_ring")


def ls(ctx: typer.Context, queues: QueuesArg) -> None:
    """List the lanes of queues, those first in which most jobs wait.

    Examples:

      emq-ops lane ls orders

      emq-ops lane ls orders 'mail-*' --output csv
    """
    context = CommandContext.of(ctx)
    with context.server("lane") as server:
        names = pick(context, queues, server)
        rows = [{"queue": queue, **row} for queue in names for row in _rows(server, queue)]
    context.emit_rows(rows, ("queue", *COLUMNS) if several(queues, names) else COLUMNS)
    say(f"{', '.join(names) if len(names) < 4 else counted(len(names), 'queue')}: {counted(len(rows), 'lane')}")


def _rows(server: Server, queue: str) -> list[dict[str, Any]]:
    q = Queue(server, queue)
    flat = server.read("HGETALL", q.keys.gweight)
    weights = {name.decode("utf-8", "replace"): value for name, value in zip(flat[::2], flat[1::2], strict=True)}
    return [lane_row(one) | {"weight": weights.get(one.group)} for one in by_need(lanes(q))]


def show(ctx: typer.Context, queue: SomeOfQueues, lane: LaneArg) -> None:
    """Show lanes: what waits in each, since when, and why nobody takes it, if nobody does.

    Examples:

      emq-ops lane show orders GRP0SS8QFjgi3i

      emq-ops lane show 'mail-*' GRP0SS8QFjgi3i --output json
    """
    context, hints = CommandContext.of(ctx), []
    with context.server("lane") as server:
        pairs = picked(context, server, queue, [lane])
        with QueueTurns(context, ("queue", *COLUMNS, "oldest_minted_ms"), many=several([queue, lane], pairs)) as turns:
            for name, found in pairs:
                q = Queue(server, name)
                row: dict[str, Any] = {
                    "queue": name,
                    **next(one for one in _rows(server, name) if one["lane"] == found),
                }
                first = server.read("ZRANGE", q.keys.lane(found), 0, 0)
                oldest = parse(first[0].decode()).unix_ms if first and is_valid(first[0]) else None
                with turns.turn():
                    turns.add(
                        row | {"oldest_minted_ms": oldest}, row | {"oldest_minted_ms": ago(oldest, server.now_ms(name))}
                    )
                hints += _hints(name, row)
    for hint in hints:
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


def picked(
    context: CommandContext, server: Server, queue: str, wanted: Sequence[str], *, new: bool = False
) -> list[tuple[str, str]]:
    """The lanes that are meant, by their queues: names, or globs of those that there are. `new`: one that is named, of
    a queue that is named, need not be there. Raises BadInputError, with the nearest name, for one that no queue has."""
    names = pick(context, [queue], server)
    there = {name: [one.group for one in lanes(Queue(server, name))] for name in names}
    plain = names == [queue]
    out: list[tuple[str, str]] = []
    for lane in wanted:
        found = [(name, one) for name in names for one in there[name] if matches(lane, one)]
        if not found and new and plain and not is_glob(lane):
            found = [(queue, group_id(lane))]
        if not found:
            if not is_glob(lane):
                group_id(lane)
            known = sorted({one for some in there.values() for one in some})
            near = near_names(lane, known)
            raise BadInputError(
                f"no lane {one_line(lane[:80])}",
                where=queue,
                fix=near or f"see which there are: emq-ops lane ls {queue}",
            )
        out += [one for one in found if one not in out]
    return out

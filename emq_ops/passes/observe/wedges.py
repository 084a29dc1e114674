"""Work that waits while nobody does it, told from two looks at a queue (``lua/wedge_look.lua``)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from emq_ops.protocol.errors import EmqError
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.scores import score_ms
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Server

OVERDUE_MS = 60_000
"""A repeatable that was due for longer fires for nobody: whoever pumps beats every second."""
NO_WORKERS, UNCLAIMED, LANES_FULL, OVERDUE = "no_workers", "unclaimed", "lanes_full", "repeatable_overdue"


@dataclass(frozen=True, slots=True)
class WorkLook:
    """What was seen at `now_ms` (server's clock): jobs waiting in `pending` (`first`: the lowest id) and in `lanes`
    (`lanes_with_work`, `lanes_full`: those of them at their limit), jobs in flight (`active`), the `ceiling` (None: no
    ceiling), the repeatable that is due first, and how many jobs ended ever (`ended`)."""

    now_ms: int
    pending: int
    active: int
    paused: bool
    ceiling: int | None
    due_ms: int | None
    due: str
    in_lanes: int
    lanes_with_work: int
    lanes_full: int
    ended: int
    first: bytes

    @property
    def waiting(self) -> int:
        """Jobs that could be claimed."""
        return self.pending + self.in_lanes


def look_at_work(server: Server, queues: Iterable[str]) -> dict[str, WorkLook]:
    """One look at each queue, in one flush. Those that can't be read are left out: their passes say why."""
    names = list(queues)
    calls = []
    for queue in names:
        k = keys_of(queue)
        keys = [k.pending, k.active, k.meta, k.repeat, k.ring, k.glimit, k.gactive, k.completed, k.failed]
        calls.append((keys, [k.base]))
    replies = server.run_many(load("wedge_look"), calls, readonly=True)
    return {q: _look(reply) for q, reply in zip(names, replies, strict=True) if not isinstance(reply, EmqError)}


def _look(reply: list[Any]) -> WorkLook:
    now, pending, active, paused, ceiling, due, name, in_lanes, lanes, full, completed, failed, first = reply
    return WorkLook(
        int(now),
        int(pending),
        int(active),
        paused == 1,
        int(ceiling) if ceiling.isdigit() and int(ceiling) > 0 else None,
        score_ms(due) if due else None,
        name.decode("utf-8", "backslashreplace"),
        int(in_lanes),
        int(lanes),
        int(full),
        _count(completed) + _count(failed),
        first,
    )


def _count(raw: bytes) -> int:
    return int(raw) if raw.isdigit() and len(raw) <= 18 else 0


def wedges(before: WorkLook, now: WorkLook) -> dict[str, str]:
    """What stood still from one look to the next: kind -> words. A paused queue waits on purpose."""
    out: dict[str, str] = {}
    if now.due_ms is not None and now.now_ms - now.due_ms > OVERDUE_MS:
        seconds = (now.now_ms - now.due_ms) // 1000
        out[OVERDUE] = f"repeatable '{now.due}' has been due for {seconds:,} s: nobody pumps this queue"
    if now.paused or before.paused:
        return out
    if now.lanes_with_work and now.lanes_full == now.lanes_with_work and not (now.active or before.active):
        out[LANES_FULL] = (
            f"all {now.lanes_with_work} lanes with work are at their limit, and nothing is in flight "
            "(`emq-ops doctor` mends wrong counts)"
        )
        if not now.pending:
            return out
    still = before.waiting and now.waiting >= before.waiting and now.ended == before.ended
    if not still:
        return out
    if not (now.active or before.active):
        out[NO_WORKERS] = f"{now.waiting:,} jobs wait, nothing is in flight, and none ended: no worker claims here"
    elif now.pending and now.first == before.first and (now.ceiling is None or now.active < now.ceiling):
        out[UNCLAIMED] = f"{now.pending:,} jobs wait, and the first of them is not claimed though others are in flight"
    return out

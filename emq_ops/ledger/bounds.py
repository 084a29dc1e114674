"""What bounds the first pass after an apply: the ids that the plan listed. It may remove fewer, never others.

A pass asks `of` before it chooses, and calls `consume_plan_limit` once it has ended: the passes after it are free.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, delete, select

from emq_ops.database.statements import among, upsert
from emq_ops.ledger.deploy_schema import bounds

DEAD = "dead"
"""The task name of the dead trim."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The list of one queue's task: `revision` set it."""

    queue: str
    task: str
    revision: int
    ids: frozenset[str]


def put(connection: Connection, queue: str, task: str, revision: int, ids: Iterable[str], now_ms: int) -> None:
    """Sets the list, in the transaction that makes the revision; an older one is replaced."""
    listed = sorted(ids)
    values = {
        "queue": queue,
        "task": task,
        "revision": revision,
        "count": len(listed),
        "ids": zlib.compress("\n".join(listed).encode("ascii")),
        "made_ms": now_ms,
    }
    upsert(connection, bounds, values)


def of(connection: Connection, queue: str, task: str = DEAD) -> Bound | None:
    """The list that bounds the next pass of `task`, None where nothing does."""
    wanted = select(bounds.c.revision, bounds.c.ids).where(bounds.c.queue == queue, bounds.c.task == task)
    row = connection.execute(wanted).first()
    if row is None:
        return None
    return Bound(queue, task, row.revision, frozenset(zlib.decompress(row.ids).decode("ascii").split()))


def of_many(connection: Connection, queues: Sequence[str], task: str = DEAD) -> list[tuple[str, int]]:
    """Queue and revision of each list that bounds the next pass of `task` on one of `queues`."""
    wanted = select(bounds.c.queue, bounds.c.revision).where(among(connection, bounds.c.queue, queues))
    return [(row.queue, row.revision) for row in connection.execute(wanted.where(bounds.c.task == task))]


def consume_plan_limits(connection: Connection, spent: Sequence[tuple[str, int]], task: str = DEAD) -> None:
    """As `consume_plan_limit`, for passes of many queues that had nothing to remove."""
    which = (bounds.c.queue == bindparam("_queue"), bounds.c.revision == bindparam("_revision"))
    rows = [{"_queue": queue, "_revision": revision} for queue, revision in sorted(spent)]
    if rows:
        connection.execute(delete(bounds).where(*which, bounds.c.task == task), rows)


def consume_plan_limit(connection: Connection, bound: Bound) -> None:
    """The pass that `bound` was for has ended. A list that a newer revision has put meanwhile stays."""
    consume_plan_limits(connection, [(bound.queue, bound.revision)], bound.task)


def drop(connection: Connection, queue: str, task: str = DEAD) -> None:
    """Takes the list away: the task that it bounds is gone."""
    connection.execute(delete(bounds).where(bounds.c.queue == queue, bounds.c.task == task))

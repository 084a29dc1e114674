"""Controlling a queue: pause, limit, drain, obliterate."""

from __future__ import annotations

from collections.abc import Sequence

from emq_ops.protocol.ids import group_id
from emq_ops.protocol.queue import Queue, positive

DRAIN_SLICE = 1000


def pause_queue(q: Queue) -> None:
    """Nothing is claimed from the queue until it is resumed."""
    q.run("pause_queue", [q.keys.meta])


def resume_queue(q: Queue) -> None:
    """Undoes pause_queue."""
    q.run("resume_queue", [q.keys.meta])


def pause_lane(q: Queue, group: str) -> None:
    """Nothing is claimed from the lane until it is resumed."""
    q.run("pause_lane", [q.keys.paused, q.keys.ring], group_id(group))


def resume_lane(q: Queue, group: str) -> None:
    """Undoes pause_lane."""
    q.run("resume_lane", [q.keys.paused], q.keys.base, group_id(group))


def limit_lane(q: Queue, group: str, limit: int) -> None:
    """At most `limit` (1 or more) of the lane's jobs are in flight at once."""
    q.run("limit_lane", [q.keys.glimit], q.keys.base, group_id(group), positive(limit, "limit"))


def unlimit_lane(q: Queue, group: str) -> None:
    """Takes the lane's ceiling away."""
    q.run("limit_lane", [q.keys.glimit], q.keys.base, group_id(group), "")


def weight_lane(q: Queue, group: str, weight: int | None) -> None:
    """The lane's weight, 1 or more; None takes it away."""
    _set(q, q.keys.gweight, group_id(group), weight, "weight")


def set_concurrency(q: Queue, ceiling: int | None) -> None:
    """At most `ceiling` (1 or more) of the queue's jobs are in flight at once; None takes the ceiling away."""
    _set(q, q.keys.meta, "concurrency", ceiling, "concurrency")


def set_rate(q: Queue, rate: int | None) -> None:
    """The queue's ``max`` rate, 1 or more; None takes it away."""
    _set(q, q.keys.meta, "max", rate, "max")


def _set(q: Queue, key: str, field: str, value: int | None, what: str) -> None:
    q.run("set_field", [key], field, "" if value is None else positive(value, what))


def drain(q: Queue, *, include_schedule: bool = False) -> int:
    """Deletes the pending jobs (and the scheduled ones), rows, logs and books; returns how many. Active jobs and lanes
    stay, and those that a worker's lock stands on. In slices: a producer that adds all the while does not keep it
    going, since it ends at the first short one."""
    total = _drain(q, q.keys.pending, "")
    return total + _drain(q, q.keys.schedule, "") if include_schedule else total


def drain_lane(q: Queue, group: str) -> int:
    """As drain, for one lane."""
    return _drain(q, q.keys.lane(group), group_id(group))


def _drain(q: Queue, key: str, group: str) -> int:
    total = past = 0
    while True:
        gone, held = (int(n) for n in q.run("drain", [key], q.keys.base, DRAIN_SLICE, group, past))
        total, past = total + gone, past + held
        if gone + held < DRAIN_SLICE:
            return total


def obliterate(q: Queue, *, force: bool = False, budget: int = 1000, lanes: Sequence[str] = ()) -> bool:
    """Takes a paused queue away, at most `budget` jobs a call. True: gone; False: call again. `lanes`: those that no
    book of the queue may name (`reads.every_lane`); all others are found by themselves.

    `force`: though jobs are active, or a worker's lock stands on some. Event streams and the flow outbox stay. Raises
    StateError (not paused, active jobs), HeldError.
    """
    args = ["1" if force else "0", positive(budget, "budget"), *map(group_id, lanes)]
    reply = q.run("obliterate", [q.keys.meta], q.keys.base, *args)
    return int(reply) == 0

"""Recovering: due scheduled jobs, lapsed leases, and the counted stalled sweep."""

from __future__ import annotations

from dataclasses import dataclass

from emq_ops.protocol.ids import group_id
from emq_ops.protocol.queue import Queue, positive

REAP_LIMIT = 100


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep did, lowest deadline first."""

    recovered: list[str]
    dead: list[str]


def promote(q: Queue, limit: int = REAP_LIMIT) -> int:
    """Promotes up to `limit` scheduled jobs that are due; returns how many."""
    return int(q.run("promote", [q.keys.schedule, q.keys.pending], q.keys.base, positive(limit, "limit")))


def reap(q: Queue, limit: int = REAP_LIMIT) -> int:
    """Puts up to `limit` lapsed jobs back to wait, uncounted; returns how many."""
    return int(q.run("reap", [q.keys.active, q.keys.pending], q.keys.base, positive(limit, "limit"), ""))


def reap_lane(q: Queue, group: str, limit: int = REAP_LIMIT) -> int:
    """As reap, for the lapsed jobs of one lane only."""
    keys = [q.keys.active, q.keys.pending]
    return int(q.run("reap", keys, q.keys.base, positive(limit, "limit"), group_id(group)))


def sweep(q: Queue, max_stalled: int = 1, limit: int = 100) -> Swept:
    """One slice of the stalled sweep: counts up to `limit` lapsed leases; at `max_stalled` a job is dead-lettered."""
    recovered, dead = q.run(
        "sweep",
        [q.keys.active, q.keys.pending, q.keys.dead],
        q.keys.base,
        positive(max_stalled, "max_stalled"),
        positive(limit, "limit"),
    )
    return Swept([i.decode("ascii") for i in recovered], [i.decode("ascii") for i in dead])

"""Claiming: the lowest of pending, or of the next lane in rotation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from emq_ops.protocol.queue import Queue, positive


@dataclass(frozen=True, slots=True)
class Claim:
    """A job in hand. `token` is its attempts, to be presented at complete, retry and extend; `claimed_ms`: when it was
    claimed, server clock."""

    job: str
    payload: bytes
    token: int
    group: str | None = None
    claimed_ms: int = field(default=0, compare=False)


def _claims(replies: list[list[Any]]) -> list[Claim]:
    return [
        Claim(job.decode("ascii"), payload, int(token), group.decode("ascii") if group else None, int(now))
        for job, payload, token, group, now in replies
    ]


def claim_batch(q: Queue, lease_ms: int, count: int, *, gate: bool = True) -> list[Claim]:
    """Claims up to `count` flat jobs, lowest id first; an empty list where there is none or the queue is paused.

    `gate`: look at ``meta.paused``, the concurrency ceiling and the rate first (RateError where one is reached).
    Raises DamagedError for a row that can't be a job's.
    """
    args = (q.keys.base, positive(lease_ms, "lease_ms"), positive(count, "count"))
    keys = [q.keys.pending, q.keys.active]
    return _claims(q.run("claim", keys, *args, "gate" if gate else ""))


def claim_lane_batch(q: Queue, lease_ms: int, count: int, *, weighted: bool = False, gate: bool = True) -> list[Claim]:
    """As claim_batch, from the lanes in rotation, one job a lane a turn; `weighted`: as many as the lane weighs (1
    where it has no weight), however few a call takes."""
    by = "weight" if weighted else ""
    args = (q.keys.base, positive(lease_ms, "lease_ms"), positive(count, "count"))
    keys = [q.keys.ring, q.keys.active]
    return _claims(q.run("claim_lane", keys, *args, "gate" if gate else "", by))


LANE_TURN = 1000
"""How many jobs of one lane a turn serves at most."""


def claim_lane_turn(
    q: Queue, lease_ms: int, *, most: int = LANE_TURN, weighted: bool = False, gate: bool = True
) -> list[Claim]:
    """Claims several jobs of the next lane in rotation, under one deadline: as far as its limit goes, at most `most`;
    `weighted`: at most the lane's weight (1 where it has none).

    An empty list does not mean that there is no work: a lane that has none, or no room, leaves the ring, and no second
    one is tried. See claim_batch.
    """
    by = "weight" if weighted else ""
    args = (q.keys.base, positive(lease_ms, "lease_ms"), positive(most, "most"), by)
    keys = [q.keys.ring, q.keys.active]
    return _claims(q.run("claim_lane_turn", keys, *args, "gate" if gate else ""))


def claim(q: Queue, lease_ms: int, *, gate: bool = True) -> Claim | None:
    """Claims the lowest flat job, or None. See claim_batch."""
    found = claim_batch(q, lease_ms, 1, gate=gate)
    return found[0] if found else None


def claim_lane(q: Queue, lease_ms: int, *, gate: bool = True) -> Claim | None:
    """Claims the lowest job of the next lane in rotation, or None. See claim_batch."""
    found = claim_lane_batch(q, lease_ms, 1, gate=gate)
    return found[0] if found else None

"""Looking: counts, where a job is, ceilings, and browsing by mint time. Nothing here changes anything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from emq_ops.protocol.errors import BadInputError, DamagedError, EmqError, RateError
from emq_ops.protocol.ids import group_id, job_id, max_id, min_id
from emq_ops.protocol.queue import Queue, positive


class JobState(Enum):
    """Where a job is."""

    PENDING = "pending"
    ACTIVE = "active"
    SCHEDULED = "scheduled"
    DEAD = "dead"
    AWAITING_CHILDREN = "awaiting_children"
    UNKNOWN = "unknown"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class Counts:
    """Jobs by place (`pending` is the flat set; lanes are counted by `lanes`), and the two counters."""

    pending: int
    active: int
    schedule: int
    dead: int
    completed: int
    failed: int


@dataclass(frozen=True, slots=True)
class Lane:
    """One lane: how many wait, how many are in flight, its ceiling (None: none)."""

    group: str
    waiting: int
    in_flight: int
    limit: int | None
    paused: bool
    on_ring: bool


def counts(q: Queue) -> Counts:
    """All six numbers, in one flush. A counter that is no number reads 0."""
    k = q.keys
    sets = [("ZCARD", key) for key in (k.pending, k.active, k.schedule, k.dead)]
    replies = q.server.read_each([*sets, ("HGET", k.completed, "count"), ("HGET", k.failed, "count")])
    for reply in replies[: len(sets)]:
        if isinstance(reply, EmqError):
            raise reply
    return Counts(*map(int, replies[: len(sets)]), *map(_count, replies[len(sets) :]))


def _count(raw: object) -> int:
    if isinstance(raw, EmqError) and not isinstance(raw, DamagedError):
        raise raw
    return int(raw) if isinstance(raw, bytes) and raw.lstrip(b"-").isdigit() and len(raw) <= 16 else 0


def is_there(q: Queue, *streams: str) -> bool:
    """Returns whether the server has any key of the queue but rows and lanes, which never stand alone; or one of
    `streams`."""
    k = q.keys
    keys = (k.pending, k.active, k.schedule, k.dead, k.ring, k.meta, k.completed, k.failed, k.repeat, k.lease)
    return int(q.server.read("EXISTS", *keys, *map(k.stream, streams))) > 0


def job_state(q: Queue, job: str) -> JobState:
    """Where the job is, by membership first, then by its row."""
    reply = q.run("job_state", [q.keys.row(job)], q.keys.base, job_id(job), readonly=True)
    return JobState(reply.decode("ascii"))


def is_paused(q: Queue) -> bool:
    """Whether the whole queue is paused."""
    return int(q.server.read("HEXISTS", q.keys.meta, "paused")) == 1


def concurrency(q: Queue) -> int | None:
    """The concurrency ceiling; None where there is none (absent, or 0)."""
    return _meta_number(q, "concurrency")


def rate(q: Queue) -> int | None:
    """The queue's ``max`` rate; None where there is none."""
    return _meta_number(q, "max")


def expect_below_ceiling(q: Queue) -> None:
    """Raises RateError where as many jobs are in flight as the queue's ceiling allows."""
    ceiling = concurrency(q)
    if ceiling and int(q.server.read("ZCARD", q.keys.active)) >= ceiling:
        raise RateError("EMQRATE at concurrency ceiling", where=q.name)


def rate_wait_ms(q: Queue, most: int = 0) -> int:
    """How long (ms) the queue's rate lets nothing through: what is left of ``limiter``, where it has come to `most` (0:
    the queue's own rate). 0: nothing holds it; so is a limiter that does not expire."""
    bound = most or rate(q) or 0
    taken, left_ms = q.server.read_many([("GET", q.keys.limiter), ("PTTL", q.keys.limiter)])
    if bound <= 0 or taken is None or not taken.isdigit() or int(taken) < bound:
        return 0
    return max(0, int(left_ms))


def dedup_owner(q: Queue, dedup_id: str) -> str | None:
    """The job that holds a dedup key; None where nobody does."""
    found = q.server.read("GET", q.keys.dedup(dedup_id))
    return None if found is None else found.decode("utf-8", "replace")


def lane_depths(q: Queue, groups: Sequence[str]) -> dict[str, int]:
    """How many jobs wait in each lane; 0 for one that is not there."""
    sizes = q.server.read_many([("ZCARD", q.keys.lane(group_id(group))) for group in groups])
    return {group: int(size) for group, size in zip(groups, sizes, strict=True)}


def data_points(q: Queue, which: str) -> tuple[int, int]:
    """The counter ``completed`` or ``failed``, and how many points its history has."""
    key = {"completed": q.keys.completed, "failed": q.keys.failed}[which]
    count, points = q.server.read_many([("HGET", key, "count"), ("LLEN", key + ":data")])
    return int(count or 0), int(points)


def _meta_number(q: Queue, name: str) -> int | None:
    value = q.server.read("HGET", q.keys.meta, name)
    if value is None:
        return None
    try:
        return int(value) or None
    except ValueError:
        shown = value[:40].decode("utf-8", "replace")
        raise DamagedError(f"EMQDATA {q.keys.meta} {name} is '{shown}', not a whole number", where=q.name) from None


def every_lane(q: Queue) -> list[Lane]:
    """As `lanes`, and those that no book names, whose jobs nobody claims: found by a SCAN of the server's keys, for
    whoever takes a queue's jobs away and must miss none."""
    found = {lane for key in q.server.scan(q.keys.lanes_pattern(), count=5000) if (lane := q.keys.lane_of(key))}
    return lanes(q, found)


def lanes(q: Queue, more: Iterable[str] = ()) -> list[Lane]:
    """Every lane that is on the ring, paused, limited or in flight, by id; and `more`."""
    k, server = q.keys, q.server
    ring, paused, flat_limits, flat_flights = server.read_many(
        [("LRANGE", k.ring, 0, -1), ("SMEMBERS", k.paused), ("HGETALL", k.glimit), ("HGETALL", k.gactive)]
    )
    limits = dict(zip(flat_limits[::2], flat_limits[1::2], strict=True))
    flights = dict(zip(flat_flights[::2], flat_flights[1::2], strict=True))
    groups = sorted({*ring, *paused, *limits, *flights, *(lane.encode("ascii") for lane in more)})
    named = [g.decode("utf-8", "replace") for g in groups]
    waiting = server.read_many([("ZCARD", k.lane(name)) for name in named])
    on_ring, held = set(ring), set(paused)
    return [
        Lane(name, int(n), int(flights.get(g, 0)), int(limits[g]) if g in limits else None, g in held, g in on_ring)
        for name, g, n in zip(named, groups, waiting, strict=True)
    ]


BROWSABLE = ("pending", "dead")


def browse(
    q: Queue, place: str, *, start_ms: int = 0, end_ms: int | None = None, group: str | None = None, limit: int = 1000
) -> list[str]:
    """Up to `limit` job ids minted within [start_ms, end_ms] (unix ms), in mint order.

    `place`: ``pending``, ``dead``, or ``lane`` with `group`: the sets whose members are ordered by id.
    """
    return [
        job for _, job in zip(range(positive(limit, "limit")), iterate(q, place, start_ms, end_ms, group), strict=False)
    ]


def iterate(
    q: Queue, place: str, start_ms: int = 0, end_ms: int | None = None, group: str | None = None, *, page: int = 1000
) -> Iterator[str]:
    """As browse, without a limit: pages of `page` ids, each read when it is needed."""
    if place == "lane" and group is not None:
        key = q.keys.lane(group_id(group))
    elif place in BROWSABLE:
        key = q.keys.pending if place == "pending" else q.keys.dead
    else:
        raise BadInputError(f"can't browse '{place}' by mint time", fix="pending, dead, or lane with a group")
    low = "[" + min_id("JOB", start_ms)
    high = "[" + max_id("JOB", end_ms if end_ms is not None else 1 << 62)
    while True:
        found = q.server.read("ZRANGEBYLEX", key, low, high, "LIMIT", 0, page)
        for job in found:
            yield job.decode("utf-8", "replace")
        if len(found) < page:
            return
        low = "(" + found[-1].decode("utf-8", "replace")


def newest(q: Queue, count: int) -> list[str]:
    """Up to `count` ids of flat pending, the youngest first."""
    found = q.server.read("ZRANGE", q.keys.pending, 0, positive(count, "count") - 1, "REV")
    return [job.decode("utf-8", "replace") for job in found]

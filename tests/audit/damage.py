"""Every kind of damage: how it is planted in a healthy queue, what names it, and what mending leaves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from emq_ops.protocol.server import Server
from tests.audit.healthy import LONG_MS, Healthy

GONE, ODD = "JOB0STBBIRAKHp", "not a job"
Plant = Callable[[Server, Healthy], str]
Check = Callable[[Server, Healthy, str], bool]


@dataclass(frozen=True)
class Damage:
    """`plant` answers the subject of the one finding; `whole`: mending brings back exactly what was before; else
    `after` says whether what mending left is right."""

    name: str
    kind: str
    plant: Plant
    whole: bool = True
    after: Check | None = None
    mended: bool = True


def _ghost(s: Server, w: Healthy) -> str:
    s.write("ZADD", w.k.active, s.now_ms("orders"), GONE)
    return GONE


def _ghosts_lane(s: Server, w: Healthy) -> str:
    s.write("ZADD", w.k.lane(w.paused[0]), 0, "JOB0STBBIRAKHq")
    return "JOB0STBBIRAKHq"


def _dead_without_row(s: Server, w: Healthy) -> str:
    s.write("ZADD", w.k.dead, 0, "JOB0STBBIRAKHr")
    return "JOB0STBBIRAKHr"


def _odd_member(s: Server, w: Healthy) -> str:
    s.write("ZADD", w.k.dead, 0, ODD)
    return ODD


def _odd_lane_member(s: Server, w: Healthy) -> str:
    s.write("ZADD", w.k.lane(w.paused[0]), 0, "GRP0STBBIRAKHo")
    return "GRP0STBBIRAKHo"


def _hollow(s: Server, w: Healthy) -> str:
    job = "JOB0STBBIRAKHs"
    s.write("HSET", w.k.row(job), "state", "dead", "stalled", 1, "last_error", "stalled")
    s.write("ZADD", w.k.dead, 0, job)
    return job


def _no_attempts(s: Server, w: Healthy) -> str:
    s.write("HDEL", w.k.row(w.pending[1]), "attempts")
    return w.pending[1]


def _bad_attempts(s: Server, w: Healthy) -> str:
    s.write("HSET", w.k.row(w.pending[2]), "attempts", "many")
    return w.pending[2]


def _no_attempts_active(s: Server, w: Healthy) -> str:
    s.write("HDEL", w.k.row(w.active[3]), "attempts")
    return w.active[3]


def _bad_stalled(s: Server, w: Healthy) -> str:
    s.write("HSET", w.k.row(w.scheduled[0]), "stalled", "one")
    return w.scheduled[0]


def _odd_group(s: Server, w: Healthy) -> str:
    s.write("HSET", w.k.row(w.scheduled[1]), "group", "vip")
    return w.scheduled[1]


def _lost_pending(s: Server, w: Healthy) -> str:
    s.write("ZREM", w.k.pending, w.pending[3])
    return w.pending[3]


def _lost_lane(s: Server, w: Healthy) -> str:
    job = w.lane_jobs[w.paused[0]][0]
    s.write("ZREM", w.k.lane(w.paused[0]), job)
    return job


def _lost_dead(s: Server, w: Healthy) -> str:
    s.write("ZREM", w.k.dead, w.dead[0])
    return w.dead[0]


def _lost_scheduled(s: Server, w: Healthy) -> str:
    s.write("ZREM", w.k.schedule, w.scheduled[2])
    return w.scheduled[2]


def _lost_lease(s: Server, w: Healthy) -> str:
    s.write("ZREM", w.k.active, w.active[0])
    return w.active[0]


def _two_places(s: Server, w: Healthy) -> str:
    s.write("ZADD", w.k.dead, 0, w.active[1])
    return w.active[1]


def _two_places_lane(s: Server, w: Healthy) -> str:
    job = w.lane_jobs[w.paused[0]][1]
    s.write("ZADD", w.k.pending, 0, job)
    return job


def _flat_though_grouped(s: Server, w: Healthy) -> str:
    job = w.lane_jobs[w.full[0]][0]
    s.write("ZREM", w.k.lane(w.full[0]), job)
    s.write("ZADD", w.k.pending, 0, job)
    return job


def _lane_of_another(s: Server, w: Healthy) -> str:
    job = w.lane_jobs[w.full[0]][1]
    s.write("ZREM", w.k.lane(w.full[0]), job)
    s.write("ZADD", w.k.lane(w.paused[0]), 0, job)
    return job


def _state(s: Server, w: Healthy) -> str:
    s.write("HSET", w.k.row(w.dead[1]), "state", "pending")
    return w.dead[1]


def _score_active(s: Server, w: Healthy) -> str:
    deadline = float(s.read("ZSCORE", w.k.active, w.active[2]))
    s.write("ZADD", w.k.active, int(deadline) // 1000, w.active[2])
    return w.active[2]


def _score_dead(s: Server, w: Healthy) -> str:
    s.write("ZADD", w.k.dead, s.now_ms("orders"), w.dead[2])
    return w.dead[2]


def _off_ring(s: Server, w: Healthy) -> str:
    s.write("LREM", w.k.ring, 0, w.free[0])
    return w.free[0]


def _ring_paused(s: Server, w: Healthy) -> str:
    s.write("RPUSH", w.k.ring, w.paused[1])
    return w.paused[1]


def _ring_full(s: Server, w: Healthy) -> str:
    s.write("RPUSH", w.k.ring, w.full[1])
    return w.full[1]


def _ring_empty(s: Server, w: Healthy) -> str:
    s.write("RPUSH", w.k.ring, "GRP0STBBIRAKHx")
    return "GRP0STBBIRAKHx"


def _ring_twice(s: Server, w: Healthy) -> str:
    s.write("RPUSH", w.k.ring, w.free[1])
    return w.free[1]


def _gactive_high(s: Server, w: Healthy) -> str:
    s.write("HSET", w.k.gactive, w.full[0], 7)
    return w.full[0]


def _gactive_left(s: Server, w: Healthy) -> str:
    s.write("HSET", w.k.gactive, w.paused[2], 1)
    return w.paused[2]


def _gactive_low(s: Server, w: Healthy) -> str:
    s.write("HDEL", w.k.gactive, w.full[2])
    s.write("RPUSH", w.k.ring, w.full[2])
    return w.full[2]


def _gactive_word(s: Server, w: Healthy) -> str:
    s.write("HSET", w.k.gactive, w.free[2], "two")
    return w.free[2]


def _odd_ring(s: Server, w: Healthy) -> str:
    s.write("RPUSH", w.k.ring, "vip")
    return "vip"


def _bad_limit(s: Server, w: Healthy) -> str:
    s.write("HSET", w.k.glimit, w.paused[-1], "lots")
    return w.paused[-1]


def _odd_lane(s: Server, w: Healthy) -> str:
    s.write("ZADD", w.k.named(b"g:gold:pending"), 0, "JOB0STBBIRAKHt")
    return "gold"


def _wrong_type(s: Server, w: Healthy) -> str:
    s.write("SET", w.k.outbox, "a string")
    return "flow:outbox"


def _wrong_row_type(s: Server, w: Healthy) -> str:
    s.write("UNLINK", w.k.row(w.pending[5]))
    s.write("SET", w.k.row(w.pending[5]), "a string")
    return w.pending[5]


def _unknown(s: Server, w: Healthy) -> str:
    s.write("SET", w.k.named(b"notes"), "mine")
    return "notes"


def _stray_lock(s: Server, w: Healthy) -> str:
    s.write("SET", w.k.book(GONE, "lock"), "1")
    return f"job:{GONE}:lock"


def _stray_book(s: Server, w: Healthy) -> str:
    s.write("HSET", w.k.book(GONE, "processed"), "a", "b")
    return f"job:{GONE}:processed"


def _dependencies(s: Server, w: Healthy) -> str:
    s.write("SET", w.k.book(w.dead[3], "dependencies"), "some")
    return f"job:{w.dead[3]}:dependencies"


def _dedup(s: Server, w: Healthy) -> str:
    s.write("SET", w.k.dedup("gone"), GONE)
    return "de:gone"


def _repeat(s: Server, w: Healthy) -> str:
    s.write("ZADD", w.k.repeat, s.now_ms("orders") + LONG_MS, "nightly")
    return "repeat:nightly"


def _repeat_unlisted(s: Server, w: Healthy) -> str:
    s.write("HSET", w.k.repeatable("weekly"), "every_ms", LONG_MS, "template", "{}")
    return "repeat:weekly"


def _repeat_every(s: Server, w: Healthy) -> str:
    s.write("ZADD", w.k.repeat, s.now_ms("orders") + LONG_MS, "never")
    s.write("HSET", w.k.repeatable("never"), "every_ms", "often", "template", "{}")
    return "repeat:never"


def _repeat_score(s: Server, w: Healthy) -> str:
    s.write("ZADD", w.k.repeat, 5, "hourly")
    return "repeat:hourly"


def _wake(s: Server, w: Healthy) -> str:
    s.write("RPUSH", w.k.wake, *["1"] * 3000)
    return "wake"


def _counter(s: Server, w: Healthy) -> str:
    s.write("HSET", w.k.failed, "count", "many")
    return "metrics:failed"


def _ceiling(s: Server, w: Healthy) -> str:
    s.write("HSET", w.k.meta, "max", "fast")
    return "meta"


def in_set(key: str) -> Check:
    return lambda s, w, subject: s.read("ZSCORE", getattr(w.k, key), subject) is not None


def row_says(name: str, value: bytes | None) -> Check:
    return lambda s, w, subject: s.read("HGET", w.k.row(subject), name) == value


DAMAGES = (
    Damage("ghost", "ghost", _ghost),
    Damage("member of a lane without row", "member_without_row", _ghosts_lane),
    Damage("dead member without row", "member_without_row", _dead_without_row),
    Damage("odd member", "odd_member", _odd_member),
    Damage("odd member of a lane", "odd_member", _odd_lane_member),
    Damage("hollow row", "hollow_row", _hollow),
    Damage("no attempts", "no_attempts", _no_attempts),
    Damage("attempts no number", "bad_attempts", _bad_attempts),
    Damage("no attempts, in active", "no_attempts", _no_attempts_active, mended=False),
    Damage("stall count no number", "bad_stalled", _bad_stalled),
    Damage("odd group", "odd_group", _odd_group, mended=False),
    Damage("lost from pending", "lost_row", _lost_pending),
    Damage("lost from its lane", "lost_row", _lost_lane),
    Damage("lost from dead", "lost_row", _lost_dead),
    Damage("lost from the schedule", "lost_row", _lost_scheduled, whole=False, after=in_set("schedule")),
    Damage("lost its lease", "lost_row", _lost_lease, whole=False, after=row_says("state", b"pending")),
    Damage("in active and dead", "two_places", _two_places),
    Damage("in its lane and pending", "two_places", _two_places_lane),
    Damage("grouped, in flat pending", "wrong_lane", _flat_though_grouped),
    Damage("in the lane of another", "wrong_lane", _lane_of_another),
    Damage("state against membership", "state_mismatch", _state),
    Damage("deadline in seconds", "odd_score", _score_active, whole=False, after=in_set("active")),
    Damage("score in dead", "odd_score", _score_dead),
    Damage("lane off the ring", "off_ring", _off_ring, whole=False),
    Damage("paused lane on the ring", "on_ring", _ring_paused),
    Damage("full lane on the ring", "on_ring", _ring_full),
    Damage("empty lane on the ring", "on_ring", _ring_empty),
    Damage("lane on the ring twice", "ring_twice", _ring_twice),
    Damage("gactive too high", "wrong_gactive", _gactive_high),
    Damage("gactive of nobody", "wrong_gactive", _gactive_left),
    Damage("gactive missing, lane on the ring", "wrong_gactive", _gactive_low),
    Damage("gactive no number", "wrong_gactive", _gactive_word),
    Damage("odd name on the ring", "odd_lane_name", _odd_ring),
    Damage("limit no number", "bad_limit", _bad_limit, mended=False),
    Damage("odd lane", "odd_lane", _odd_lane, mended=False),
    Damage("wrong type", "wrong_type", _wrong_type, mended=False),
    Damage("row of another type", "wrong_type", _wrong_row_type, mended=False),
    Damage("unknown key", "unknown_key", _unknown, mended=False),
    Damage("stray lock", "stray_book", _stray_lock),
    Damage("stray flow book", "stray_book", _stray_book),
    Damage("dependencies no number", "bad_dependencies", _dependencies, mended=False),
    Damage("stray deduplication key", "stray_dedup", _dedup),
    Damage("repeatable without hash", "repeat_without_hash", _repeat),
    Damage("repeatable not listed", "repeat_not_listed", _repeat_unlisted, whole=False),
    Damage("interval no number", "bad_every", _repeat_every, mended=False),
    Damage("next instant odd", "odd_repeat", _repeat_score, whole=False),
    Damage("wake too long", "long_wake", _wake, whole=False),
    Damage("counter no number", "bad_count", _counter, whole=False),
    Damage("rate no number", "bad_ceiling", _ceiling, mended=False),
)

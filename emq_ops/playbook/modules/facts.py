"""One look at a queue, at one moment (``lua/health.lua``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from emq_ops.protocol.errors import BadInputError, EmqError
from emq_ops.protocol.ids import parse
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.scores import score_ms
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Server

_NUMBERS = ("now", "pending", "active", "scheduled", "dead", "completed_total", "failed_total", "paused")


def look(q: Queue, streams: Sequence[str] = ()) -> dict[str, Any]:
    """What `modules.operate.Health` returns. Raises DamagedError where a key is of another type."""
    return _facts(q.run("health", _keys(q, streams), q.keys.base, readonly=True), streams)


def look_many(server: Server, wanted: Sequence[tuple[Queue, Sequence[str]]]) -> list[dict[str, Any] | EmqError]:
    """As `look`, at many queues in one flush; an error stands in the place of its queue."""
    calls = [(_keys(q, streams), (q.keys.base,)) for q, streams in wanted]
    replies = server.run_many(load("health"), calls, readonly=True)
    return [
        reply if isinstance(reply, EmqError) else _facts(reply, streams)
        for (_, streams), reply in zip(wanted, replies, strict=True)
    ]


def _keys(q: Queue, streams: Sequence[str]) -> list[str]:
    k = q.keys
    keys = [k.pending, k.active, k.schedule, k.dead, k.completed, k.failed, k.meta, k.repeat, k.wake, k.ring, k.paused]
    return [*keys, k.glimit, k.gactive, k.gweight, k.lease, *(k.stream(name) for name in streams)]


def _facts(reply: list[Any], streams: Sequence[str]) -> dict[str, Any]:
    out: dict[str, Any] = {name: int(value) for name, value in zip(_NUMBERS, reply, strict=False)}
    now = out.pop("now")
    in_lanes, others, lapsed, overdue, first, deadline, due, until = reply[8:16]
    jobs = out["pending"] + out["active"] + out["scheduled"] + out["dead"] + in_lanes
    return out | {
        "exists": bool(jobs or others),
        "jobs": jobs,
        "paused": bool(out["paused"]),
        "waiting": out["pending"] + in_lanes,
        "lapsed": int(lapsed),
        "overdue": int(overdue),
        "oldest_pending_ms": _minted_ago(first, now),
        "longest_lapsed_ms": _ago(deadline, now) if lapsed else 0,
        "longest_overdue_ms": _ago(due, now) if overdue else 0,
        "streams": {name: int(length) for name, length in zip(streams, reply[16:], strict=True)},
        "led": until.isdigit() and int(until) > now,
    }


def _ago(score: bytes, now: int) -> int:
    return max(0, now - score_ms(score))


def _minted_ago(job: bytes, now: int) -> int:
    try:
        return max(0, now - parse(job).unix_ms)
    except BadInputError:
        return 0

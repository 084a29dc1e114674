"""One look at a queue, in one flush (and a second where lanes have work)."""

from __future__ import annotations

from typing import Any

from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.ids import parse
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.transitions import reads


def look(q: Queue, streams: list[str]) -> dict[str, Any]:
    """What `modules.operate.Health` returns."""
    k, server = q.keys, q.server
    now = server.now_ms(q.name)
    replies = server.read_many(
        [
            *(("ZCARD", key) for key in (k.pending, k.active, k.schedule, k.dead)),
            ("HGET", k.completed, "count"),
            ("HGET", k.failed, "count"),
            ("HEXISTS", k.meta, "paused"),
            ("ZCOUNT", k.active, "-inf", now),
            ("ZCOUNT", k.schedule, "-inf", now),
            ("ZRANGE", k.pending, 0, 0),
            ("ZRANGE", k.active, 0, 0, "WITHSCORES"),
            ("ZRANGE", k.schedule, 0, 0, "WITHSCORES"),
            ("EXISTS", k.ring, k.paused, k.glimit, k.gactive),
            ("EXISTS", k.meta, k.repeat),
            ("HMGET", k.lease, "until"),
            *(("XLEN", k.stream(name)) for name in streams),
        ]
    )
    pending, active, scheduled, dead, completed, failed, paused = (int(reply or 0) for reply in replies[:7])
    lapsed, overdue = int(replies[7]), int(replies[8])
    first, leased, due, lanes, others, lease = replies[9:15]
    in_lanes = sum(lane.waiting for lane in reads.lanes(q)) if lanes else 0
    until = lease[0] if lease and lease[0] is not None and lease[0].isdigit() else b"0"
    known = pending or active or scheduled or dead or completed or failed or lanes or others
    return {
        "exists": bool(known),
        "paused": bool(paused),
        "pending": pending,
        "waiting": pending + in_lanes,
        "active": active,
        "lapsed": lapsed,
        "scheduled": scheduled,
        "overdue": overdue,
        "dead": dead,
        "completed_total": completed,
        "failed_total": failed,
        "oldest_pending_ms": _minted_ago(first, now),
        "longest_lapsed_ms": max(0, now - int(float(leased[1]))) if lapsed else 0,
        "longest_overdue_ms": max(0, now - int(float(due[1]))) if overdue else 0,
        "streams": {name: int(length) for name, length in zip(streams, replies[15:], strict=True)},
        "led": int(until) > now,
    }


def _minted_ago(first: list[bytes], now: int) -> int:
    try:
        return max(0, now - parse(first[0]).unix_ms) if first else 0
    except BadInputError:
        return 0

"""What holds for every queue at rest, read from the whole keyspace by plain commands (an independent oracle)."""

from __future__ import annotations

import re
from typing import Any

from emq_ops.protocol.server import Server
from tests.support.keyspace import dump

_ID = "[0-9A-Za-z]{11}"
GRAMMAR = re.compile(
    r"(pending|active|schedule|dead|ring|paused|glimit|gactive|gweight|wake|meta|repeat|metrics:(completed|failed)|flow:outbox"
    rf"|job:JOB{_ID}(:(logs|lock|dependencies|processed|failed|unsuccessful))?|g:GRP{_ID}:pending|repeat:.+|de:.+"
    r"|stream:[^:]+(:archived)?)"
)


class QueueView:
    """One queue of a dumped keyspace."""

    def __init__(self, keyspace: dict[str, dict[str, Any]], queue: str) -> None:
        base = "emq:{" + queue + "}:"
        self.keys = {key[len(base) :]: value for key, value in keyspace.items() if key.startswith(base)}

    def zset(self, name: str) -> list[str]:
        return [m.decode() for m in self.keys.get(name, {}).get("zset", {})]

    def hash(self, name: str) -> dict[str, str]:
        return {k.decode(): v.decode() for k, v in self.keys.get(name, {}).get("hash", {}).items()}

    def items(self, name: str, kind: str) -> list[str]:
        return [v.decode() for v in self.keys.get(name, {}).get(kind, [])]

    @property
    def rows(self) -> dict[str, dict[bytes, bytes]]:
        return {k[4:]: v["hash"] for k, v in self.keys.items() if re.fullmatch(f"job:JOB{_ID}", k)}

    @property
    def lanes(self) -> dict[str, list[str]]:
        return {k[2:16]: self.zset(k) for k in self.keys if re.fullmatch(f"g:GRP{_ID}:pending", k)}


def violations(server: Server, queue: str, *, off_ring_allowed: frozenset[str] = frozenset()) -> list[str]:
    """Every broken invariant, as a sentence. `off_ring_allowed`: lanes that may be servable and off the ring (a sweep
    that dead-letters a grouped job leaves them so, as recorded)."""
    view = QueueView(dump(server), queue)
    wrong = [f"key outside the grammar: {key}" for key in view.keys if not GRAMMAR.fullmatch(key)]
    places: dict[str, list[str]] = {}
    for place in ("pending", "active", "schedule", "dead"):
        for job in view.zset(place):
            places.setdefault(job, []).append(place)
    for group, members in view.lanes.items():
        for job in members:
            places.setdefault(job, []).append(f"lane {group}")
            if view.rows.get(job, {}).get(b"group") != group.encode():
                wrong.append(f"{job} is in lane {group}, its row says {view.rows.get(job, {}).get(b'group')!r}")
    states = {"pending": b"pending", "active": b"active", "schedule": b"scheduled", "dead": b"dead"}
    for job, row in view.rows.items():
        where = places.pop(job, [])
        held = row[b"state"] == b"awaiting_children"
        if len(where) != (0 if held else 1):
            wrong.append(f"{job} ({row[b'state']!r}) is in {where}")
        elif where and row[b"state"] != states.get(where[0], b"pending"):
            wrong.append(f"{job} is in {where[0]}, its row says {row[b'state']!r}")
        if where == ["pending"] and b"group" in row:
            wrong.append(f"{job} is grouped and in flat pending")
    wrong += [f"member without a row: {job} in {where}" for job, where in places.items()]
    flights: dict[str, int] = {}
    for job in view.zset("active"):
        group = view.rows.get(job, {}).get(b"group")
        if group:
            flights[group.decode()] = flights.get(group.decode(), 0) + 1
    counted = {g: int(n) for g, n in view.hash("gactive").items()}
    if counted != flights:
        wrong.append(f"gactive says {counted}, in flight are {flights}")
    limits = {g: int(n) for g, n in view.hash("glimit").items()}
    paused = set(view.items("paused", "set"))
    servable = {g for g in view.lanes if g not in paused and flights.get(g, 0) < limits.get(g, 1 << 60)}
    ring = view.items("ring", "list")
    if len(set(ring)) != len(ring):
        wrong.append(f"a lane twice on the ring: {ring}")
    if set(ring) - servable or servable - set(ring) - off_ring_allowed:
        wrong.append(f"ring holds {sorted(ring)}, servable are {sorted(servable)}")
    if len(view.items("wake", "list")) > 64:
        wrong.append("wake is over 64")
    return wrong

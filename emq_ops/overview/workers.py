"""Who works a queue, as far as the wire tells: jobs in flight by the instant of their lease, and clients that wait for
a wake-up. Which client holds which lease, the wire does not say.
Which client holds which lease, the wire does not say.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from emq_ops.protocol.errors import EmqError
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.scores import score_ms
from emq_ops.protocol.server import Server

_FIELD = re.compile(r"(\w[\w-]*)=(\S*)")
BLOCKING = frozenset({"blpop", "brpop", "blmove", "bzpopmin", "xreadgroup", "xread"})
"""Commands in which a parked client waits."""


@dataclass(frozen=True, slots=True)
class WorkersLook:
    """Of one queue: `in_flight` leases, of which `lapsed`; `first_ms`, `last_ms`: the deadlines that come first and
    last (unix ms, None without a lease)."""

    queue: str
    now_ms: int
    in_flight: int
    lapsed: int
    first_ms: int | None
    last_ms: int | None


@dataclass(frozen=True, slots=True)
class ParkedClient:
    """A client that waits in a blocking command: its name and address, and for how long (ms)."""

    name: str
    address: str
    command: str
    idle_ms: int


def workers_of(server: Server, queues: Sequence[str]) -> list[WorkersLook]:
    """Leases of each queue, in one flush. Raises what the server raises."""
    found = []
    for queue in queues:
        key, now = keys_of(queue).active, server.now_ms(queue)
        count, lapsed, first, last = server.read_many(
            [
                ("ZCARD", key),
                ("ZCOUNT", key, "-inf", now),
                ("ZRANGE", key, 0, 0, "WITHSCORES"),
                ("ZRANGE", key, -1, -1, "WITHSCORES"),
            ]
        )
        found.append(WorkersLook(queue, now, int(count), int(lapsed), _score(first), _score(last)))
    return found


def parked(server: Server, queue: str) -> tuple[list[ParkedClient], str]:
    """The clients that wait on the node which owns the queue, for whichever queue; and why nobody can be told, empty
    where they can."""
    try:
        text = server.read_on(queue, "CLIENT", "LIST").decode("utf-8", "replace")
    except EmqError as fault:
        return [], str(fault)
    rows = [dict(_FIELD.findall(line)) for line in text.splitlines()]
    waiting = [row for row in rows if "b" in row.get("flags", "") or row.get("cmd", "").lower() in BLOCKING]
    return [
        ParkedClient(row.get("name", ""), row.get("addr", ""), row.get("cmd", ""), 1000 * int(row.get("idle", "0")))
        for row in waiting
    ], ""


def _score(flat: Sequence[Any]) -> int | None:
    return score_ms(flat[1]) if flat else None

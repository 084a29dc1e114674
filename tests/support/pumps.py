"""EchoMQ's own pump, as far as its repeatables go."""

from __future__ import annotations

from emq_ops.protocol.ids import mint
from emq_ops.protocol.queue import Queue


def other_pump(q: Queue, name: str) -> None:
    """As EchoMQ's: enqueue, then advance, by the host's clock."""
    job, now = mint(), q.server.now_ms(q.name)
    q.server.write("HSET", q.keys.row(job), "state", "pending", "attempts", "0", "payload", "t")
    q.server.write("ZADD", q.keys.pending, 0, job)
    q.server.write("ZADD", q.keys.repeat, now + int(q.server.read("HGET", q.keys.repeatable(name), "every_ms")), name)

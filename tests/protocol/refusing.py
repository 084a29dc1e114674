"""Every transition on one job, and what a refused one must leave."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from emq_ops.protocol.errors import EmqError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.transitions import claims, control, enqueue, jobs, leases, reads, recover, repeat, settle
from tests.support.keyspace import dump

JOB, OTHER, GROUP = "JOB0STBBIRAKHo", "JOB0STBBIRAKHp", "GRP0STBBIRAKHo"

Call = Callable[[Queue], object]

TRANSITIONS: dict[str, Call] = {
    "enqueue": lambda q: enqueue.enqueue(q, OTHER, b"x"),
    "enqueue_lane": lambda q: enqueue.enqueue(q, OTHER, b"x", group=GROUP),
    "schedule": lambda q: enqueue.schedule_in(q, OTHER, b"x", 5),
    "claim": lambda q: claims.claim(q, 1000),
    "claim_lane": lambda q: claims.claim_lane(q, 1000),
    "complete": lambda q: settle.complete(q, JOB, 1),
    "retry": lambda q: settle.retry(q, JOB, 1, settle.Failure(b"e", delay_ms=1, max_attempts=1)),
    "promote": recover.promote,
    "reap": recover.reap,
    "sweep": recover.sweep,
    "extend": lambda q: leases.extend(q, JOB, 1, 1000),
    "keep": lambda q: leases.keep(q, [(JOB, 1)], 1000),
    "remove": lambda q: jobs.remove(q, JOB),
    "reprocess": lambda q: jobs.reprocess(q, JOB),
    "requeue": lambda q: jobs.requeue(q, JOB),
    "update_payload": lambda q: jobs.update_payload(q, JOB, b"x"),
    "update_progress": lambda q: jobs.update_progress(q, JOB, b"x"),
    "add_log": lambda q: jobs.add_log(q, JOB, b"x"),
    "pause_queue": control.pause_queue,
    "pause_lane": lambda q: control.pause_lane(q, GROUP),
    "resume_lane": lambda q: control.resume_lane(q, GROUP),
    "limit_lane": lambda q: control.limit_lane(q, GROUP, 2),
    "drain": control.drain,
    "drain_lane": lambda q: control.drain_lane(q, GROUP),
    "register": lambda q: repeat.register(q, "r", 5, b"x"),
    "job_state": lambda q: reads.job_state(q, JOB),
}


def seed(q: Queue) -> None:
    """A grouped job with a lapsed lease and its row."""
    now = q.server.now_ms(q.name)
    q.server.write("HSET", q.keys.row(JOB), "state", "active", "attempts", "1", "payload", "p", "group", GROUP)
    q.server.write("ZADD", q.keys.active, now - 1000, JOB)
    q.server.write("HSET", q.keys.gactive, GROUP, "1")


def refused(q: Queue, call: Call, error: type[EmqError]) -> str:
    before = dump(q.server)
    with pytest.raises(error) as caught:
        call(q)
    assert dump(q.server) == before
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 400
    return text


def set_aside(q: Queue, call: Call, member: str = JOB) -> str:
    """The call passes the member over, changes nothing else, and names it; returns the reason."""
    before = dump(q.server)
    call(q)
    after = dump(q.server)
    named: dict[bytes, bytes] = after.pop(q.keys.aside)["hash"]
    assert after == before
    assert list(named) == [member.encode()]
    return named[member.encode()].decode()

"""A job's lane."""

from __future__ import annotations

from enum import Enum

from emq_ops.protocol.ids import group_id, job_id
from emq_ops.protocol.queue import Queue


class Reassigned(Enum):
    """What became of a reassignment, and the server's word for it."""

    MOVED = 1
    THERE_ALREADY = 0
    NO_LANE = -1
    """No such job, or one without a lane."""
    NOT_WAITING = -2
    """It does not wait in its lane: in hand, scheduled or dead."""


def reassign(q: Queue, job: str, group: str) -> Reassigned:
    """Puts a job that waits in its lane into another one. Raises KindError, BadInputError."""
    return Reassigned(int(q.run("reassign", [q.keys.row(job)], q.keys.base, job_id(job), group_id(group))))

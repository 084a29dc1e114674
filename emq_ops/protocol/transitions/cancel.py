"""Asking for a job's cancellation (docs/protocol.md, *Cancellation*)."""

from __future__ import annotations

import json
from enum import Enum

from emq_ops.protocol.ids import job_id
from emq_ops.protocol.queue import Queue

DEFAULT_REASON = "cancelled"


class CancelAnswer(Enum):
    """What a request came to."""

    GONE = "gone"
    """There is no such job (any more)."""
    REMOVED = "removed"
    """It waited, and was removed with its row, logs and books."""
    SIGNALLED = "signalled"
    """It is in a worker's hand, and an event was published: at most once, lost where no worker listens."""
    LOCKED = "locked"
    """It waits, and a worker holds it all the same (its lock stands, as a key or in the row); it was left alone."""
    NOT_CANCELLABLE = "not cancellable"
    """It is dead, or waits for its flow children."""


def request(q: Queue, job: str, reason: str = DEFAULT_REASON) -> CancelAnswer:
    """Asks for `job`'s cancellation; nothing interrupts a handler that does not look at its token.

    The parent of a flow child that is removed hears that it died. Raises ServerError without a right to publish.
    """
    event = json.dumps({"event": "cancel", "job": job_id(job), "reason": reason or DEFAULT_REASON})
    reply = q.run("cancel", [q.keys.row(job)], q.keys.base, job, event, q.keys.events)
    return CancelAnswer(reply.decode("ascii"))

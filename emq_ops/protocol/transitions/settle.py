"""Settling a claim: complete it, or retry it after an error."""

from __future__ import annotations

from enum import Enum

from emq_ops.protocol.ids import job_id
from emq_ops.protocol.queue import Queue, blob, not_negative, positive


class Retried(Enum):
    """Where a retried job went."""

    SCHEDULED = "scheduled"
    DEAD = "dead"


def complete(q: Queue, job: str, token: int) -> bool:
    """Completes a job: its row goes. False: there is no row.

    Raises StaleTokenError (another claim holds it), StateError (it has a flow parent).
    """
    k = q.keys
    return bool(q.run("complete", [k.active, k.row(job), k.completed], k.base, job_id(job), positive(token, "token")))


def retry(q: Queue, job: str, token: int, *, delay_ms: int, max_attempts: int, error: bytes | str) -> Retried:
    """Puts a failed job on the schedule, `delay_ms` from the server's now, or into the dead set at its last attempt.

    Raises StaleTokenError (another claim holds it, or it is gone), StateError (it would die and has a flow parent).
    """
    k = q.keys
    reply = q.run(
        "retry",
        [k.active, k.row(job), k.schedule, k.dead, k.failed],
        k.base,
        job_id(job),
        positive(token, "token"),
        not_negative(delay_ms, "delay_ms"),
        positive(max_attempts, "max_attempts"),
        blob(error, "error"),
    )
    return Retried(reply.decode("ascii"))

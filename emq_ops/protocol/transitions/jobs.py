"""One job by its id: read, change, remove, bring back from the dead set."""

from __future__ import annotations

from dataclasses import dataclass

from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.ids import job_id
from emq_ops.protocol.queue import Queue, blob, not_negative


@dataclass(frozen=True, slots=True)
class Requeued:
    """A dead job that waits again: the attempts it keeps, and the stall count that was cleared."""

    attempts: int
    stalled: int


def read_row(q: Queue, job: str) -> dict[bytes, bytes] | None:
    """The whole row, or None where there is none."""
    flat = q.server.read("HGETALL", q.keys.row(job))
    return dict(zip(flat[::2], flat[1::2], strict=True)) or None


def read_logs(q: Queue, job: str) -> list[bytes]:
    """The job's log lines, oldest first; none of a job that is gone, whose logs the reference leaves behind."""
    row, lines = q.server.read_many([("EXISTS", q.keys.row(job)), ("LRANGE", q.keys.book(job, "logs"), 0, -1)])
    return list(lines) if row else []


def remove(q: Queue, job: str, *, dedup_id: str | None = None) -> bool:
    """Removes a job from wherever it is, with row, logs and books. False: there is no row.

    `dedup_id`: its dedup key, released only if it holds this job. Raises HeldError while a worker holds the job.
    """
    keys = [q.keys.row(job), q.keys.book(job, "lock")]
    if dedup_id is not None:
        keys.append(q.keys.dedup(dedup_id))
    return int(q.run("remove", keys, q.keys.base, job_id(job))) == 1


def reprocess(q: Queue, job: str) -> bool:
    """Puts a dead job back to wait; attempts and stall count stay. False: no row. Raises StateError (not dead)."""
    return int(q.run("reprocess", [q.keys.dead, q.keys.row(job)], q.keys.base, job_id(job))) == 1


def requeue(q: Queue, job: str) -> Requeued | None:
    """As reprocess, and clears the stall count and exemptions. None: no row. Raises StateError (not dead)."""
    reply = q.run("requeue", [q.keys.dead, q.keys.row(job), q.keys.exempt], q.keys.base, job_id(job))
    return None if reply == -1 else Requeued(int(reply[0]), int(reply[1]))


def update_payload(q: Queue, job: str, payload: bytes | str) -> bool:
    """Replaces the payload. False: no row."""
    return int(q.run("update_payload", [q.keys.row(job)], blob(payload, "payload"))) == 1


def update_progress(q: Queue, job: str, progress: bytes | str) -> bool:
    """Sets the progress and publishes it on the events channel. False: no row."""
    return int(q.run("update_progress", [q.keys.row(job)], job_id(job), blob(progress, "progress"), q.keys.events)) == 1


def add_log(q: Queue, job: str, line: bytes | str, *, keep: int = 0) -> int | None:
    """Adds a log line, keeping the last `keep` (0: all). Returns how many there are; None: no row."""
    if keep > 1_000_000:
        raise BadInputError(f"keep is {keep}", fix="0 keeps all lines")
    keys = [q.keys.row(job), q.keys.book(job, "logs")]
    lines = int(q.run("add_log", keys, blob(line, "line"), not_negative(keep, "keep")))
    return None if lines == -1 else lines

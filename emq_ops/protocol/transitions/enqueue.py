"""Putting jobs in: now, into a lane, in one flush, or for later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from emq_ops.protocol.errors import EmqError
from emq_ops.protocol.ids import group_id, job_id
from emq_ops.protocol.queue import Queue, blob, instant, not_negative
from emq_ops.protocol.server import Arg


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to enqueue; `group` puts it into that lane."""

    job: str
    payload: bytes
    group: str | None = None


def _call(q: Queue, new: NewJob) -> tuple[str, list[str], list[Arg]]:
    payload = blob(new.payload, "payload")
    if new.group is None:
        return "enqueue", [q.keys.row(new.job), q.keys.pending], [job_id(new.job), payload]
    keys = [q.keys.row(new.job), q.keys.lane(new.group)]
    return "enqueue_lane", keys, [q.keys.base, job_id(new.job), payload, group_id(new.group)]


def enqueue(q: Queue, job: str, payload: bytes | str, *, group: str | None = None) -> bool:
    """Admits a job into pending or its lane. False: the row exists, and nothing changed.

    Raises KindError (not a ``JOB`` id), BadInputError (malformed id).
    """
    script, keys, args = _call(q, NewJob(job, blob(payload, "payload"), group))
    return bool(q.run(script, keys, *args))


def enqueue_many(q: Queue, jobs: Sequence[NewJob]) -> list[bool | EmqError]:
    """Admits many jobs in one flush: for each, in order, admitted, existed, or its error.

    Raises before anything is sent if any id is malformed.
    """
    by_script: dict[str, list[tuple[int, list[str], list[Arg]]]] = {}
    for place, new in enumerate(jobs):
        script, keys, args = _call(q, new)
        by_script.setdefault(script, []).append((place, keys, args))
    replies: list[bool | EmqError] = [False] * len(jobs)
    for script, calls in by_script.items():
        answers = q.run_many(script, [(keys, args) for _, keys, args in calls])
        for (place, _, _), answer in zip(calls, answers, strict=True):
            replies[place] = answer if isinstance(answer, EmqError) else bool(answer)
    return replies


def schedule_in(q: Queue, job: str, payload: bytes | str, delay_ms: int, *, group: str | None = None) -> bool:
    """Schedules a job `delay_ms` from the server's now. False: the row exists."""
    not_negative(delay_ms, "delay_ms")
    return _schedule(q, job, payload, group, "", delay_ms)


def schedule_at(q: Queue, job: str, payload: bytes | str, run_at_ms: int, *, group: str | None = None) -> bool:
    """Schedules a job for an instant (unix ms). False: the row exists."""
    instant(run_at_ms, "run_at_ms")
    return _schedule(q, job, payload, group, run_at_ms, "")


def _schedule(q: Queue, job: str, payload: bytes | str, group: str | None, at_ms: Arg, delay_ms: Arg) -> bool:
    lane = group_id(group) if group is not None else ""
    keys = [q.keys.row(job), q.keys.schedule]
    return bool(q.run("schedule", keys, job_id(job), blob(payload, "payload"), lane, at_ms, delay_ms))

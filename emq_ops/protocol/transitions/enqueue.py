"""Putting jobs in: now, into a lane, for later, once a key, one or many in one flush."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from emq_ops.protocol.errors import BadInputError, DamagedError, EmqError, one_line
from emq_ops.protocol.ids import group_id, job_id
from emq_ops.protocol.queue import Queue, blob, instant, not_negative, positive
from emq_ops.protocol.scripts import Script, load
from emq_ops.protocol.server import Arg

Moment = Literal["completed", "dead", "removed"]
MOMENTS: tuple[Moment, ...] = ("completed", "dead", "removed")
MAX_DEDUP_BYTES = 200
BATCH, BATCH_BYTES = 500, 1 << 20
"""Jobs, and bytes of their payloads, that one script admits."""


@dataclass(frozen=True, slots=True)
class Dedup:
    """A deduplication key: as long as a job holds it, no other is admitted with it.

    `ttl_ms`: for so long at the most (None: until it is released); `release`: at what the job that holds it gives it
    back (by workers and acts of emq-ops; the reference's leave it). Without any, it stands for its `ttl_ms`, whatever
    becomes of the job. Raises BadInputError.
    """

    key: str
    ttl_ms: int | None = None
    release: tuple[Moment, ...] = MOMENTS

    def __post_init__(self) -> None:
        size = len(self.key.encode("utf-8", "surrogatepass"))
        if not 1 <= size <= MAX_DEDUP_BYTES or not self.key.isprintable():
            raise BadInputError(
                f"'{one_line(self.key[:40])}' can't be a deduplication key",
                fix=f"1 to {MAX_DEDUP_BYTES} bytes of printable text",
            )
        if odd := [moment for moment in self.release if moment not in MOMENTS]:
            raise BadInputError(f"nothing is released at '{one_line(str(odd[0]))}'", fix=", ".join(MOMENTS))
        if self.ttl_ms is not None:
            positive(self.ttl_ms, "ttl_ms")
        elif not self.release:
            raise BadInputError("a deduplication key without a ttl that is never released", fix="give one of them")


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to enqueue. `group`: into that lane; `delay_ms` (from the server's now) or `run_at_ms` (unix ms): not
    before; `dedup`: not while another holds its key."""

    job: str
    payload: bytes | str
    group: str | None = None
    delay_ms: int | None = None
    run_at_ms: int | None = None
    dedup: Dedup | None = None


@dataclass(frozen=True, slots=True)
class Enqueued:
    """What came of one: `added`, or not, since `job` is there already: itself, or the one that holds its key."""

    job: str
    added: bool


def _times(new: NewJob) -> tuple[Arg, Arg]:
    if new.delay_ms is not None and new.run_at_ms is not None:
        raise BadInputError("a delay and an instant at once", where=new.job, fix="give one of them")
    at = "" if new.run_at_ms is None else instant(new.run_at_ms, "run_at_ms")
    return at, "" if new.delay_ms is None else not_negative(new.delay_ms, "delay_ms")


def _call(q: Queue, new: NewJob) -> tuple[Script, list[str], list[Arg]]:
    """Raises BadInputError, KindError before anything is sent."""
    k, job, payload = q.keys, job_id(new.job), blob(new.payload, "payload")
    lane = "" if new.group is None else group_id(new.group)
    at, delay = _times(new)
    if new.dedup is not None:
        dedup = new.dedup
        args = [k.base, job, payload, lane, at, delay, dedup.key, dedup.ttl_ms or "", ",".join(dedup.release)]
        return load("enqueue_dedup"), [k.row(job), k.dedup(dedup.key)], args
    if at != "" or delay != "":
        return load("schedule"), [k.row(job), k.schedule], [job, payload, lane, at, delay]
    if lane:
        return load("enqueue_lane"), [k.row(job), k.lane(lane)], [k.base, job, payload, lane]
    return load("enqueue"), [k.row(job), k.pending], [job, payload]


def _told(job: str, reply: object) -> Enqueued | EmqError:
    if isinstance(reply, EmqError):
        return reply
    if isinstance(reply, list):
        return Enqueued(reply[1].decode("utf-8", "replace"), reply[0] == 1)
    return Enqueued(job, reply == 1)


def put(q: Queue, new: NewJob) -> Enqueued:
    """Admits a job, unless it is there or another holds its deduplication key; nothing changes then.

    Raises KindError (no ``JOB`` or ``GRP`` id), BadInputError (malformed ids, bounds), and what the server raises.
    """
    told = _told(new.job, q.server.run(*_call(q, new)))
    assert isinstance(told, Enqueued)  # an error was raised
    return told


def put_many(q: Queue, jobs: Sequence[NewJob]) -> list[Enqueued | EmqError]:
    """As `put`, of many in one flush; what came of each in its place, or its refusal. Plain ones go by the hundred in a
    script. Raises before anything is sent where anything is malformed."""
    calls: list[tuple[Script, list[str], list[Arg]]] = []
    places: list[list[int]] = []
    script, room, size = load("enqueue_many"), 0, 0
    for place, new in enumerate(jobs):
        if new.dedup is not None or new.delay_ms is not None or new.run_at_ms is not None:
            calls.append(_call(q, new))
            places.append([place])
            room = 0
            continue
        payload = blob(new.payload, "payload")
        if room == 0 or size + len(payload) > BATCH_BYTES:
            calls.append((script, [q.keys.pending], [q.keys.base]))
            places.append([])
            room, size = BATCH, 0
        calls[-1][2].extend((job_id(new.job), payload, "" if new.group is None else group_id(new.group)))
        places[-1].append(place)
        room -= 1
        size += len(payload)
    told: list[Enqueued | EmqError] = [Enqueued("", False)] * len(jobs)
    for call, some, reply in zip(calls, places, q.server.run_each(calls), strict=True):
        replies = reply if call[0] is script and isinstance(reply, list) else [reply] * len(some)
        if call[0] is script and isinstance(reply, DamagedError):
            # One bad key refused them all: each for itself.
            replies = q.server.run_each([_call(q, jobs[place]) for place in some])
        for place, one in zip(some, replies, strict=True):
            told[place] = _told(jobs[place].job, one)
    return told


def enqueue(q: Queue, job: str, payload: bytes | str, *, group: str | None = None) -> bool:
    """Admits a job into pending or its lane. False: the row exists, and nothing changed.

    Raises KindError (not a ``JOB`` id), BadInputError (malformed id).
    """
    return put(q, NewJob(job, payload, group)).added


def enqueue_many(q: Queue, jobs: Sequence[NewJob]) -> list[bool | EmqError]:
    """Admits many jobs in one flush: for each, in order, admitted, existed, or its error.

    Raises before anything is sent if any id is malformed.
    """
    return [one if isinstance(one, EmqError) else one.added for one in put_many(q, jobs)]


def schedule_in(q: Queue, job: str, payload: bytes | str, delay_ms: int, *, group: str | None = None) -> bool:
    """Schedules a job `delay_ms` from the server's now. False: the row exists."""
    return put(q, NewJob(job, payload, group, delay_ms=delay_ms)).added


def schedule_at(q: Queue, job: str, payload: bytes | str, run_at_ms: int, *, group: str | None = None) -> bool:
    """Schedules a job for an instant (unix ms). False: the row exists."""
    return put(q, NewJob(job, payload, group, run_at_ms=run_at_ms)).added

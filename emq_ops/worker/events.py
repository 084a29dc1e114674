"""What a consumer tells: typed events, to be drawn by whoever listens. Times are ms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from emq_ops.protocol.errors import EmqError

JobOutcome = Literal["completed", "cancelled", "scheduled", "delayed", "dead"]


@dataclass(frozen=True, slots=True)
class WorkerEvent:
    """The base. `queue`: its name."""

    queue: str


@dataclass(frozen=True, slots=True)
class Started(WorkerEvent):
    """A job was claimed and is handed to the handler."""

    job: str
    attempts: int
    group: str | None


@dataclass(frozen=True, slots=True)
class Settled(WorkerEvent):
    """A job left our hands as it should. `detail`: result or error; ``scheduled`` means: it failed
    and comes again, ``delayed``: the handler put it off."""

    job: str
    attempts: int
    outcome: JobOutcome
    detail: bytes | None
    took_ms: int


@dataclass(frozen=True, slots=True)
class Signalled(WorkerEvent):
    """A job in hand was told to stop. Whether it does is the handler's choice."""

    job: str
    attempts: int
    reason: str


@dataclass(frozen=True, slots=True)
class JobLeaseLost(WorkerEvent):
    """A job is not ours any more, so nothing was written for it: lease gone, another claim, or the row removed."""

    job: str
    attempts: int
    why: str


@dataclass(frozen=True, slots=True)
class Recovered(WorkerEvent):
    """Lapsed leases of whichever worker. `by`: ``reap`` (uncounted; `dead` empty) or ``stalled``."""

    by: Literal["reap", "stalled"]
    recovered: int
    dead: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SetAside(WorkerEvent):
    """`member` (a job, usually) can't be taken, and is passed over where it stands: `reason` begins with its set."""

    member: str
    reason: str


@dataclass(frozen=True, slots=True)
class Trouble(WorkerEvent):
    """`task` could not be done; it is tried again after `wait_ms`. `again`: how often in a row before."""

    task: str
    error: EmqError
    wait_ms: int
    again: int


@dataclass(frozen=True, slots=True)
class TroubleEnded(WorkerEvent):
    """`task` was done again, after Trouble."""

    task: str


@dataclass(frozen=True, slots=True)
class Silent(WorkerEvent):
    """Nothing is left but `jobs` in hand, and none of them has shown a sign of life for `silent_ms`. `left`: that was
    enough; they are left as they are, and their leases lapse."""

    jobs: tuple[str, ...]
    silent_ms: int
    left: bool


@dataclass(frozen=True, slots=True)
class ConsumerReport(WorkerEvent):
    """How a run went. `abandoned`: jobs that did not settle before the deadline; their leases lapse. `aside`: members
    that were seen to be set aside; `delayed`: jobs that the handler put off."""

    completed: int
    cancelled: int
    scheduled: int
    dead: int
    lost: int
    recovered: int
    abandoned: tuple[str, ...] = field(default=())
    aside: int = 0
    delayed: int = 0


Listener = Callable[[WorkerEvent], None]


def describe(event: WorkerEvent) -> str:
    """Returns one line for an operator. May hold the text of strangers: escape it before it reaches a terminal."""
    match event:
        case Started(job=job, attempts=attempts):
            return f"{job} started, attempt {attempts}"
        case Settled(job=job, outcome=outcome, detail=detail, took_ms=took):
            text = "" if detail is None else ": " + detail[:200].decode("utf-8", "backslashreplace")
            return f"{job} {outcome} after {took} ms{text}"
        case Signalled(job=job, reason=reason):
            return f"{job} told to stop: {reason}"
        case JobLeaseLost(job=job, why=why):
            return f"{job} lost: {why}"
        case Recovered(by=by, recovered=recovered, dead=dead):
            return f"{by}: {recovered} recovered" + (f", dead: {' '.join(dead)}" if dead else "")
        case SetAside(member=member, reason=reason):
            return f"{member} set aside: {reason}"
        case Trouble(task=task, error=error, wait_ms=wait):
            return f"{task}: {error}; again in {wait} ms"
        case TroubleEnded(task=task):
            return f"{task}: done again"
        case Silent(jobs=jobs, silent_ms=ms, left=left):
            text = f"{' '.join(jobs)}: no sign of life for {ms // 1000} s"
            return f"{text}; left: worked again once the lease has lapsed" if left else f"waiting for {text}"
        case ConsumerReport(abandoned=abandoned):
            return f"stopped; abandoned: {' '.join(abandoned)}" if abandoned else "stopped"
        case _:
            return repr(event)

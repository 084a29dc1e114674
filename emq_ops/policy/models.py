"""What a queue's passes are told to do: one frozen type a pass, the one place of its fields, defaults and bounds.

Times are ms, sizes bytes. Each raises BadInputError for a value that can't be meant.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from emq_ops.policy.kinds import COUNT, POSITIVE, SECRET, SHARE, SPAN, SWITCH, TEXT, choice, size, whole
from emq_ops.policy.options import Listed, Nested, check, flat, option
from emq_ops.policy.scalars import format_duration
from emq_ops.policy.schedule import Schedule
from emq_ops.policy.triggers import Interval
from emq_ops.protocol.errors import BadInputError

Restart = Literal["exempt", "count"]
Executor = Literal["script", "native"]
AgeBy = Literal["seen", "minted"]
TrimAfter = Literal["remote", "local"]
Groups = Literal["respect", "ignore"]

MAX_SLICE = 10_000
"""Jobs that one script may take in hand: a server does nothing else meanwhile."""
_TEXTS = Listed(TEXT, single=True)


@dataclass(frozen=True, slots=True)
class Unfit:
    """Why a policy is not what a file should ask for: the key that says so ('': the section), what would be expected
    there, and what there is."""

    key: str
    expected: str
    got: str
    fix: str | None = None


class PassPolicy:
    """The base of a pass's policy. Subclasses are frozen dataclasses whose fields are declared by `option` and `flat`;
    they have a `schedule`, and `protect`: every destructive verb on the queue is refused."""

    __slots__ = ()

    def __post_init__(self) -> None:
        check(self)

    def unfit(self) -> Unfit | None:
        """Why no file should ask for it, though it could be carried out; None where nothing speaks against it."""
        schedule = getattr(self, "schedule", None)
        return jitter_fault(schedule) if isinstance(schedule, Schedule) else None


def jitter_fault(schedule: Schedule) -> Unfit | None:
    """Jitter that would make runs fewer than the interval promises."""
    trigger = schedule.trigger
    if not isinstance(trigger, Interval) or schedule.jitter_ms <= trigger.ms:
        return None
    return Unfit("jitter", f"at most the interval ({trigger.text})", format_duration(schedule.jitter_ms))


def _at_most() -> Any:
    # A file asks for none by `protect`; a command may.
    return option(replace(POSITIVE, low=0), None, "a run that would remove more stops and raises an alert")


@dataclass(frozen=True, slots=True)
class StalledPolicy(PassPolicy):
    """The sweep of a queue's lapsed leases."""

    schedule: Schedule = flat(Schedule(Interval(30_000)), every="how often lapsed leases are looked for")
    max_removals: int | None = _at_most()
    max_stalled: int = option(whole(1, 1_000_000), 1, "this many counted stalls dead-letter a job")
    limit: int = option(whole(1, MAX_SLICE), 100, "jobs a slice; slices follow until nothing is due")
    lease_ms: int = option(SPAN, 30_000, "the longest lease that workers of this queue take")
    restart: Restart = option(
        choice("exempt", "count"), "exempt", "whether a lease lost in an interruption or a maintenance window counts"
    )
    max_exempt: int = option(whole(0, 1_000_000), 3, "exemptions in a row for one job")
    executor: Executor = option(choice("script", "native"), "script", "native: the server module's own command")
    max_share: float | None = option(SHARE, None, "stop at a burst above this share of what is active")
    protect: bool = False

    def __post_init__(self) -> None:
        check(self)
        if self.executor == "native" and self.restart == "count":
            raise BadInputError(
                "the native executor can't count leases of an earlier server life",
                where="executor",
                fix="restart: exempt, or executor: script",
            )


@dataclass(frozen=True, slots=True)
class Redaction:
    """Fields that must not be stored as they are."""

    drop: tuple[str, ...] = option(_TEXTS, (), "left out")
    hash: tuple[str, ...] = option(_TEXTS, (), "stored as a keyed hash")
    salt: str | None = option(SECRET, None, "the key of the hashes")


@dataclass(frozen=True, slots=True)
class ArchivePolicy:
    """How records are archived, for streams and dead jobs alike; see `emq_archive.model.Policy`."""

    segment_bytes: int = option(size(1), 64 << 20, "a segment is shipped when it is this large")
    ship_after_ms: int = option(SPAN, 60_000, "and at the latest after this long")
    trim_after: TrimAfter = option(choice("remote", "local"), "remote", "what must hold a record before it is trimmed")
    local_keep_ms: int | None = option(SPAN, None, "shipped rows leave the local database after this long")
    expire_after_ms: int | None = option(SPAN, None, "segments older than this go, by `archive expire`")
    compact_grace_ms: int = option(SPAN, 86_400_000, "merged segments are kept for this long")
    redact: Redaction | None = option(Nested(Redaction), None, "dropped or hashed before anything is stored")


@dataclass(frozen=True, slots=True)
class DeadPolicy(PassPolicy):
    """The trim of a queue's dead jobs: what `keep` or `max_age_ms` lets go, goes; with neither nothing does.

    `slice`: jobs a script call.
    """

    schedule: Schedule = flat(Schedule(Interval(600_000)), every="how often the dead set is trimmed")
    max_removals: int | None = _at_most()
    archiving: ArchivePolicy = flat(ArchivePolicy())
    keep: int | None = option(COUNT, None, "exactly this many dead jobs stay")
    max_age_ms: int | None = option(SPAN, None, "dead jobs older than this go")
    age_by: AgeBy = option(choice("seen", "minted"), "seen", "age since first seen dead, or since the job was made")
    archive: bool = option(SWITCH, False, "into the archive first; left out: true where there is an archive section")
    protect: bool = False
    slice: int = 250

    def __post_init__(self) -> None:
        check(self)
        if not 1 <= self.slice <= 1000:
            raise BadInputError(f"slice is {self.slice}", fix="give a whole number from 1 to 1000")

    def unfit(self) -> Unfit | None:
        """As above; and a trim that would never let anything go."""
        if self.keep is None and self.max_age_ms is None:
            return Unfit("", "keep or max_age, or both", "neither", fix="or enabled: false")
        return jitter_fault(self.schedule)


@dataclass(frozen=True, slots=True)
class StreamPolicy(PassPolicy):
    """The archive of one event stream: what `keep` or `max_age_ms` (by stream time) lets go leaves the server; with
    neither nothing does."""

    schedule: Schedule = flat(Schedule(Interval(5_000)), every="how often the stream is folded")
    max_removals: int | None = _at_most()
    archiving: ArchivePolicy = flat(ArchivePolicy())
    keep: int | None = option(COUNT, None, "exactly this many records stay in Valkey")
    max_age_ms: int | None = option(SPAN, None, "records older than this leave Valkey")
    groups: Groups = option(choice("respect", "ignore"), "respect", "records that a consumer group needs stay")
    protect: bool = False


Policy = StalledPolicy | DeadPolicy | StreamPolicy

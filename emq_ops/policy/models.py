"""What a queue's passes are told to do: values only, as the YAML says them. Times are ms, sizes bytes.

Each raises BadInputError for a value that can't be meant.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.transitions.recover import MAX_SLICE

Restart = Literal["exempt", "count"]
Executor = Literal["script", "native"]
AgeBy = Literal["seen", "minted"]
TrimAfter = Literal["remote", "local"]
Groups = Literal["respect", "ignore"]

MAX_MS = 3_155_760_000_000
"""A hundred years: a longer time is a mistake in the unit."""


def _number(what: str, value: int | None, *, least: int, most: int = MAX_MS) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most):
        raise BadInputError(f"{what} is {value!r}", fix=f"give a whole number from {least} to {most}")


def _one_of(what: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise BadInputError(f"{what} is {value!r}", fix=f"one of {', '.join(allowed)}")


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a pass runs: every `every_ms`, or by `cron` (cron's own rules) in `zone`; one of the two.

    `jitter_ms`: up to this much is added at random. `max_late_ms`: a run later than this is missed, None: never too
    late. `timeout_ms`: how long it may take. `coalesce`: several missed runs are one.
    """

    every_ms: int | None = None
    cron: str | None = None
    zone: str = "UTC"
    jitter_ms: int = 0
    max_late_ms: int | None = None
    timeout_ms: int | None = 300_000
    coalesce: bool = True

    def __post_init__(self) -> None:
        if (self.every_ms is None) == (self.cron is None):
            raise BadInputError("a schedule needs an interval or a cron expression, one of the two", fix="every: 30s")
        _number("every", self.every_ms, least=1)
        _number("jitter", self.jitter_ms, least=0)
        _number("max_late", self.max_late_ms, least=0)
        _number("timeout", self.timeout_ms, least=1)


def _every(ms: int) -> Schedule:
    return Schedule(every_ms=ms)


def _share(what: str, value: float | None) -> None:
    if value is not None and (isinstance(value, bool) or not 0 < value <= 1):
        raise BadInputError(f"{what} is {value!r}", fix="give a share above 0 and up to 1")


@dataclass(frozen=True, slots=True)
class StalledPolicy:
    """The stalled sweep of a queue.

    `max_stalled`: the stall that dead-letters. `limit`: leases a slice. `lease_ms`: the queue's longest lease.
    `restart`: ``exempt`` (leases that lapsed because of an interruption or in a maintenance window do not count, at
    most `max_exempt` times in a row for one job) or ``count``. `max_removals`, `max_share` (of what is active): a pass
    that would dead-letter more stops before the first, with an alert; None: off.
    """

    schedule: Schedule = field(default_factory=lambda: _every(30_000))
    max_stalled: int = 1
    limit: int = 100
    lease_ms: int = 30_000
    restart: Restart = "exempt"
    max_exempt: int = 3
    executor: Executor = "script"
    max_removals: int | None = None
    max_share: float | None = None
    protect: bool = False

    def __post_init__(self) -> None:
        _number("max_stalled", self.max_stalled, least=1)
        _number("limit", self.limit, least=1, most=MAX_SLICE)
        _number("lease", self.lease_ms, least=1)
        _number("max_exempt", self.max_exempt, least=0)
        _number("max_removals", self.max_removals, least=0)
        _share("max_share", self.max_share)
        _one_of("restart", self.restart, ("exempt", "count"))
        _one_of("executor", self.executor, ("script", "native"))
        if self.executor == "native" and self.restart == "count":
            raise BadInputError("executor native can't count restarts", fix="restart: exempt, or executor: script")


@dataclass(frozen=True, slots=True)
class ArchivePolicy:
    """How records are archived, for streams and dead jobs alike; see `emq_archive.model.Policy`."""

    segment_bytes: int = 64 * 1024 * 1024
    ship_after_ms: int = 60_000
    trim_after: TrimAfter = "remote"
    local_keep_ms: int | None = None
    expire_after_ms: int | None = None
    compact_grace_ms: int = 86_400_000
    redact_drop: tuple[str, ...] = ()
    redact_hash: tuple[str, ...] = ()
    redact_salt: str = ""

    def __post_init__(self) -> None:
        _number("segment", self.segment_bytes, least=1024)
        _number("ship_after", self.ship_after_ms, least=0)
        _number("local_keep", self.local_keep_ms, least=0)
        _number("expire", self.expire_after_ms, least=1)
        _number("compact_grace", self.compact_grace_ms, least=0)
        _one_of("trim_after", self.trim_after, ("remote", "local"))


@dataclass(frozen=True, slots=True)
class DeadPolicy:
    """The dead trim of a queue: `keep` exactly N, `max_age_ms`, either or both (what either lets go, goes); with
    neither nothing goes.

    `age_by`: ``seen`` (first seen dead) or ``minted``. `archive`: the row, logs and death are archived and proven
    before the job is deleted. `protect`: refuses every destructive verb on the queue. `max_removals`: a pass that would
    remove more stops before the first, with an alert. `slice`: jobs a script call.
    """

    schedule: Schedule = field(default_factory=lambda: _every(600_000))
    keep: int | None = None
    max_age_ms: int | None = None
    age_by: AgeBy = "seen"
    archive: bool = False
    archiving: ArchivePolicy = field(default_factory=ArchivePolicy)
    protect: bool = False
    max_removals: int | None = None
    slice: int = 250

    def __post_init__(self) -> None:
        _number("keep", self.keep, least=0)
        _number("max_age", self.max_age_ms, least=0)
        _number("max_removals", self.max_removals, least=0)
        _number("slice", self.slice, least=1, most=1000)
        _one_of("age_by", self.age_by, ("seen", "minted"))


@dataclass(frozen=True, slots=True)
class StreamPolicy:
    """The archive of one event stream: `keep` exactly N in Valkey, `max_age_ms` by stream time, either or both; with
    neither nothing is trimmed. `groups`: ``respect`` what consumer groups still need, or ``ignore``."""

    schedule: Schedule = field(default_factory=lambda: _every(5_000))
    keep: int | None = None
    max_age_ms: int | None = None
    groups: Groups = "respect"
    archiving: ArchivePolicy = field(default_factory=ArchivePolicy)
    protect: bool = False
    max_removals: int | None = None

    def __post_init__(self) -> None:
        _number("keep", self.keep, least=0)
        _number("max_age", self.max_age_ms, least=0)
        _number("max_removals", self.max_removals, least=0)
        _one_of("groups", self.groups, ("respect", "ignore"))


Policy = StalledPolicy | DeadPolicy | StreamPolicy


def as_row(policy: Policy) -> dict[str, Any]:
    """A policy as plain values, for the ledger and for JSON."""
    return asdict(policy)


def from_row(kind: type[Policy], row: dict[str, Any]) -> Policy:
    """Back from `as_row`; raises BadInputError for what is none."""
    values = dict(row)
    try:
        if "schedule" in values:
            values["schedule"] = Schedule(**values["schedule"])
        if "archiving" in values:
            fields = dict(values["archiving"])
            for name in ("redact_drop", "redact_hash"):
                fields[name] = tuple(fields.get(name, ()))
            values["archiving"] = ArchivePolicy(**fields)
        return kind(**values)
    except TypeError as fault:
        raise BadInputError(f"no policy: {fault}", fix="it was written by another version of emq-ops") from fault

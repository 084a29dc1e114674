"""What the parts of the archive tell of their work. Values only; times are unix ms, sizes bytes."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from emq_archive.model import StreamId, StreamRef


class Row:
    """A report that renderers take as a plain dict."""

    __slots__ = ()

    def as_row(self) -> dict[str, Any]:
        """Its fields by name."""
        return asdict(self)  # type: ignore[call-overload,no-any-return]  # every subclass is a dataclass


@dataclass(frozen=True, slots=True)
class Unstorable:
    """A record that can't be stored: it stays in the stream, and nothing at or above it is trimmed."""

    id: StreamId
    reason: str


@dataclass(frozen=True, slots=True)
class Added:
    """What `SqlStore.add` did with a page: `new` stored, `known` were there already with the same bytes, `reborn`
    of the new ones came under an id that was taken by other bytes, `erased` belong to an erased job and were passed
    over, `unstorable` are named."""

    new: int = 0
    known: int = 0
    reborn: int = 0
    erased: int = 0
    unstorable: tuple[Unstorable, ...] = ()


@dataclass(frozen=True, slots=True)
class Outbox:
    """What is stored and not proven in the remote: how many, about how many bytes, since when (unix ms, of the
    frontier's clock), and the lowest id."""

    records: int = 0
    bytes: int = 0
    oldest_ms: int | None = None
    first: StreamId | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a trim needs. Every record read with an id below `bound` (exclusive; None: none) is proven: in a committed
    segment that was read back (`trim_after: remote`), or in the local database with FULL (`local`).

    `lsn`, `head`: number and hash of the log's head that it rests on (None for `local`).
    """

    ref: StreamRef
    bound: StreamId | None
    lsn: int | None = None
    head: str | None = None
    trim_after: Literal["remote", "local"] = "remote"


@dataclass(slots=True)
class Shipped:
    """What `Shipper.ship` did: `records` newly proven (of them `found` already in another host's segments), in
    `segments` new ones of `bytes`; `incarnations` opened; `lsn`/`head` of the log now; `watermark`: the ``EVT`` id of
    the newest archived record, None while there is none."""

    records: int = 0
    found: int = 0
    segments: int = 0
    bytes: int = 0
    incarnations: int = 0
    lsn: int = 0
    head: str | None = None
    watermark: str | None = None


@dataclass
class StreamCounts:
    """What was done with a stream, and how it stands. Counts are records; `refused` says why nothing (more) was
    trimmed."""

    stream: str = ""
    folded: int = 0
    known: int = 0
    shipped: int = 0
    segments: int = 0
    trimmed: int = 0
    watermark: str | None = None
    bound: str | None = None
    unshipped: int = 0
    lag_records: int = 0
    lag_ms: int = 0
    lsn: int = 0
    reborn: int = 0
    erased: int = 0
    unstorable: list[dict[str, str]] = field(default_factory=list)
    groups: list[dict[str, Any]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


@dataclass
class CycleReport(StreamCounts, Row):
    """What one cycle did. `notes`: what an operator should know (another trimmer, a stream made anew, a watermark that
    could not be written)."""

    queue: str = ""
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, ref: StreamRef) -> CycleReport:
        """An empty one."""
        return cls(ref.stream, queue=ref.queue)


@dataclass(frozen=True, slots=True)
class Stats:
    """Of a local database: rows, rows not shipped, bytes of their fields, newest and oldest id, segments and bytes
    known of the remote."""

    rows: int = 0
    unshipped: int = 0
    bytes: int = 0
    oldest: StreamId | None = None
    newest: StreamId | None = None
    segments: int = 0
    remote_records: int = 0
    remote_bytes: int = 0
    last_lsn: int = 0
    last_commit_ms: int | None = None

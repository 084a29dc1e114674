"""The words of the archive: streams, records, frontiers, policies, receipts, reports. Values only; nothing here talks.

Units: times are unix ms, sizes bytes. A stream id is ``(ms, seq)``, two unsigned 64-bit numbers, and Python's tuple
order is the stream's order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

from emq_archive import codec
from emq_ops.protocol import ids
from emq_ops.protocol.errors import BadInputError

StreamId = tuple[int, int]
RawEntry = Sequence[Any]
"""An entry as the server sends it: ``[b"<ms>-<seq>", [name, value, name, value, ...]]``, all bytes."""
Pair = tuple[bytes, bytes]

FIRST_ID: StreamId = (0, 0)
LAST_ID: StreamId = (ids.MAX_STREAM_PART, ids.MAX_STREAM_PART)
DEAD = "dead"
"""The name under which dead jobs are archived; a real stream of this name is kept apart by its kind."""


def parse_id(text: str | bytes) -> StreamId:
    """``b"5-3"`` as ``(5, 3)``; raises BadInputError."""
    return ids.split_stream_id(text)


def show_id(stream_id: StreamId) -> str:
    """``(5, 3)`` as ``"5-3"``."""
    return f"{stream_id[0]}-{stream_id[1]}"


def next_id(stream_id: StreamId) -> StreamId | None:
    """The lowest id above this one, None above the very last."""
    ms, seq = stream_id
    if seq < ids.MAX_STREAM_PART:
        return ms, seq + 1
    return (ms + 1, 0) if ms < ids.MAX_STREAM_PART else None


@dataclass(frozen=True, slots=True, order=True)
class StreamRef:
    """What is archived: a stream of a queue (``kind="stream"``) or its dead jobs (``kind="dead"``, stream ``dead``)."""

    queue: str
    stream: str
    kind: Literal["stream", "dead"] = "stream"

    @classmethod
    def dead(cls, queue: str) -> StreamRef:
        return cls(queue, DEAD, "dead")

    def __str__(self) -> str:
        return f"{self.queue}/{self.stream}" if self.kind == "stream" else f"{self.queue} (dead jobs)"


@dataclass(frozen=True)
class Record:
    """One archived record. `fields` are its name/value pairs as they stood, order and repeated names included.

    Identity: stream, `id`, `incarnation` (0, and one more each time that the same id came again with other bytes) and
    `hash`. A dead job's id is made of its own identity, see `dead_id`. The properties read the usual fields, the first
    of a name, and are None where it is not there.
    """

    id: StreamId
    fields: tuple[Pair, ...]
    incarnation: int = 0
    kind: Literal["stream", "dead"] = "stream"

    @classmethod
    def from_entry(cls, entry: RawEntry, incarnation: int = 0, kind: Literal["stream", "dead"] = "stream") -> Record:
        """From a raw reply of the server."""
        flat = entry[1]
        return cls(parse_id(entry[0]), tuple(zip(flat[::2], flat[1::2], strict=True)), incarnation, kind)

    @property
    def stream_id(self) -> str:
        return show_id(self.id)

    def first(self, name: bytes) -> bytes | None:
        """The value of the first field of that name."""
        return next((v for n, v in self.fields if n == name), None)

    @cached_property
    def columns(self) -> codec.Columns:
        """The usual fields, decoded as the segments' columns are."""
        return codec.columns_of(self.id[0], [x for pair in self.fields for x in pair], self.kind)

    @property
    def evt(self) -> str | None:
        """The ``EVT`` id in field ``id``, None where it is absent or malformed."""
        return self.columns.evt

    @property
    def job(self) -> str | None:
        return self.columns.job

    @property
    def outcome(self) -> str | None:
        return self.columns.outcome

    @property
    def attempts(self) -> int | None:
        return self.columns.attempts

    @property
    def result(self) -> bytes | None:
        return self.columns.result

    @property
    def error(self) -> bytes | None:
        return self.columns.error

    @property
    def group(self) -> str | None:
        return self.columns.group

    @property
    def time_ms(self) -> int:
        """When it happened: a stream's record by its id, a dead job when it was first seen dead."""
        return self.columns.time_ms

    @cached_property
    def packed(self) -> bytes:
        """The stored form of the fields (`codec.pack`)."""
        return codec.pack([x for pair in self.fields for x in pair])

    @property
    def hash(self) -> bytes:
        """SHA-256 of id and fields (of a dead job: without the facts of its death, which hosts may see differently)."""
        packed = self.packed if self.kind == "stream" else codec.pack(codec.without_facts(self.packed))
        return hashlib.sha256(codec.id_key(*self.id) + packed).digest()

    @property
    def size(self) -> int:
        """About what it takes in memory and at rest, uncompressed."""
        return len(self.packed) + 24


MAX_DEAD_ATTEMPTS = (1 << 26) - 1
MAX_DEAD_STALLS = (1 << 16) - 1


def dead_id(job: str | ids.BrandedId, attempts: int, stalls: int) -> StreamId:
    """The id of a dead job's record, made of its identity alone, so that every host makes the same:
    ms = the job's mint time, seq = low 22 bits of its snowflake, 26 bits attempts, 16 bits stalls.

    A job that dies again has another id; one archived twice has the same. Raises BadInputError for what is no
    ``JOB`` id or does not fit.
    """
    branded = ids.parse(ids.job_id(job)) if isinstance(job, str) else job
    if not 0 <= attempts <= MAX_DEAD_ATTEMPTS or not 0 <= stalls <= MAX_DEAD_STALLS:
        raise BadInputError(f"attempts {attempts} or stalls {stalls} of {job} do not fit", fix="look at the row")
    low = branded.snowflake & ids.MAX_LOW
    return branded.unix_ms, low << 42 | attempts << 16 | stalls


def dead_fields(job: str, row: Sequence[Pair], logs: Sequence[bytes], facts: Sequence[Pair] = ()) -> list[bytes]:
    """A dead job's record, name and value in turn: ``job``, the row's fields as ``row:<name>``, its log lines as
    ``log`` (oldest first), what is known of its death (``seen_at`` unix ms, ``cause`` ...) as ``fact:<name>``."""
    flat: list[bytes] = [b"job", job.encode("ascii")]
    for name, value in row:
        flat.append(b"row:" + name)
        flat.append(value)
    for line in logs:
        flat.append(b"log")
        flat.append(line)
    for name, value in facts:
        flat.append(b"fact:" + name)
        flat.append(value)
    return flat


def dead_entry(
    job: str, row: Sequence[Pair], logs: Sequence[bytes], facts: Sequence[Pair] = (), *, attempts: int, stalls: int
) -> RawEntry:
    """A dead job as an entry that `LocalStore.add` takes."""
    return [show_id(dead_id(job, attempts, stalls)).encode("ascii"), dead_fields(job, row, logs, facts)]


@dataclass(frozen=True, slots=True)
class Frontier:
    """How far a stream was folded, stored in one transaction with the records.

    `last`: the highest id read in this life of the stream (None: nothing yet); `first`: the lowest id seen at its head.
    A life ends when `last_generated` or `entries_added` falls; `life` counts them on this host. `run_id` is the
    server's life. `folded` counts records added by this host so far. `updated_ms` is server time.
    """

    last: StreamId | None = None
    first: StreamId | None = None
    life: int = 0
    last_generated: StreamId = FIRST_ID
    entries_added: int = 0
    run_id: str = ""
    folded: int = 0
    updated_ms: int = 0


@dataclass(frozen=True, slots=True)
class Unstorable:
    """A record that can't be stored: it stays in the stream, and nothing at or above it is trimmed."""

    id: StreamId
    reason: str


@dataclass(frozen=True, slots=True)
class Added:
    """What `LocalStore.add` did with a page: `new` stored, `known` were there already with the same bytes, `reborn`
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
class Redact:
    """Named fields that must not be stored as they are: `drop` removes the pair, `hash` keeps
    ``sha256:<hex of HMAC-SHA256(salt, value)>``. Of a dead job, names are those of the row."""

    drop: tuple[str, ...] = ()
    hash: tuple[str, ...] = ()
    salt: str = ""

    def __bool__(self) -> bool:
        return bool(self.drop or self.hash)


@dataclass(frozen=True, slots=True)
class Policy:
    """How one stream is archived.

    `keep`: how many stay in Valkey (exactly N); `max_age_ms`: how old they may get, by stream time; with both, what
    either lets go is let go; with neither, nothing is trimmed. `page`: entries a read; `batch`: entries a transaction.
    """

    keep: int | None = None
    max_age_ms: int | None = None
    segment_bytes: int = 64 * 1024 * 1024
    ship_after_ms: int = 60_000
    trim_after: Literal["remote", "local"] = "remote"
    groups: Literal["respect", "ignore"] = "respect"
    page: int = 1000
    batch: int = 10_000
    trim_slice: int = 10_000
    max_record_bytes: int = 256 * 1024 * 1024
    redact: Redact = field(default_factory=Redact)
    local_keep_ms: int | None = None
    """How long shipped rows stay in the local database; None: for ever."""
    expire_after_ms: int | None = None
    """Explicit: segments whose newest record is older are dropped by `expire`; None: never."""
    compact_grace_ms: int = 24 * 3_600_000


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


@dataclass(slots=True)
class Report:
    """What one cycle did. Counts are records; `refused` says why nothing (more) was trimmed; `notes` what an operator
    should know (another trimmer, a stream made anew, a watermark that could not be written)."""

    queue: str
    stream: str
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
    notes: list[str] = field(default_factory=list)

    def as_row(self) -> dict[str, Any]:
        """As a plain dict, for renderers."""
        return asdict(self)


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

"""The words of the archive: streams, records, frontiers, policies, writers. Values only; nothing here talks.

Units: times are unix ms, sizes bytes. A stream id is ``(ms, seq)``, two unsigned 64-bit numbers, and Python's tuple
order is the stream's order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from emq_archive import codec
from emq_ops.protocol import ids

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
    max_record_bytes: int = 256 * 1024 * 1024
    redact: Redact = field(default_factory=Redact)
    local_keep_ms: int | None = None
    """How long shipped rows stay in the local database; None: for ever."""
    expire_after_ms: int | None = None
    """Explicit: segments whose newest record is older are dropped by `expire`; None: never."""
    compact_grace_ms: int = 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class Writer:
    """Who writes the log: `state` is the UUID of the state that owns the queue, `token` its fencing token (0 for
    one-shot use without a lease), `name` the host and process, for people. `former`: other states whose archives this
    one goes on with, each under the id that its log began with."""

    state: str
    token: int = 0
    name: str = ""
    former: frozenset[str] = frozenset()

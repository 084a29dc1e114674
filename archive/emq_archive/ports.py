"""What the parts of the archive ask of each other. The driver is written against these, whatever the backend."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from emq_archive.chunk import Batch
from emq_archive.model import (
    FIRST_ID,
    Added,
    Frontier,
    Outbox,
    Policy,
    RawEntry,
    Receipt,
    Record,
    Shipped,
    Stats,
    StreamId,
    StreamRef,
)


@dataclass(frozen=True, slots=True)
class Fence:
    """Who writes: `state` is the UUID of the state that owns the queue, `token` its fencing token (0 for one-shot use
    without a lease), `writer` names host and process for people."""

    state: str
    token: int = 0
    writer: str = ""


class LocalStore(Protocol):
    """The local database. Raises DatabaseError, DatabaseUnreachableError; then nothing was changed."""

    url: str

    def state(self) -> str:
        """The UUID of this database, for use where it is the state (no other state database is named)."""

    def add(
        self,
        ref: StreamRef,
        batch: Batch,
        frontier: Frontier | None,
        policy: Policy,
    ) -> Added:
        """Stores a batch and the frontier (None: leaves it) in one transaction. Adding a record again changes nothing.
        A batch holds pages of raw replies, or `dead_entry`; a commit costs an fsync, so make it 10,000 records or
        some MiB: ``batch = Batch(); batch.append(page); ...; store.add(ref, batch, frontier, policy)``."""

    def frontier(self, ref: StreamRef) -> Frontier | None:
        """What was stored last, None at first."""

    def outbox(self, ref: StreamRef) -> Outbox:
        """What is not shipped; costs no scan of the records."""

    def records(
        self,
        ref: StreamRef,
        start: StreamId | None = None,
        end: StreamId | None = None,
        *,
        job: str | None = None,
        limit: int | None = None,
    ) -> Iterator[Record]:
        """Rows of [start, end] in order, in bounded pages."""

    def proven(self, ref: StreamRef, entries: Sequence[RawEntry]) -> set[StreamId]:
        """The ids of those entries whose very bytes are in a shipped row (for dead jobs: which victims may go)."""

    def stats(self, ref: StreamRef) -> Stats: ...

    def streams(self) -> list[StreamRef]:
        """What this database has heard of."""

    def prune(self, ref: StreamRef, policy: Policy, *, now_ms: int, below: StreamId | None) -> int:
        """Deletes shipped rows older than `local_keep_ms` with an id below `below` (what is still in the stream is
        kept: it will be read again); answers how many."""

    def close(self) -> None: ...


class Remote(Protocol):
    """An object store with create-only writes. Keys are '/'-joined texts below the store's own prefix.

    Raises StoreRefusedError, StoreUnreachableError, DiskFullError, DeadlineError. Every call but `put` and `delete` is
    safe to repeat.
    """

    url: str

    def location(self, key: str) -> str:
        """Where engines find an object: ``s3://...`` or ``file:///...``."""

    def probe(
        self,
    ) -> None:
        """Proves once a process that creating twice is refused; StoreRefusedError says what to do otherwise."""

    def create(
        self,
        key: str,
        body: bytes | Path,
    ) -> Literal["created", "exists"]:
        """Writes a new object (from bytes or from a file), durable when this returns.

        ``exists``: one is there (it may be our own lost reply)."""

    def get(
        self,
        key: str,
    ) -> bytes | None:
        """The whole object, None where there is none."""

    def get_range(
        self,
        key: str,
        start: int,
        length: int,
    ) -> bytes | None: ...

    def size(
        self,
        key: str,
    ) -> int | None:
        """Its length, None where there is none."""

    def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> list[str]:
        """At most `limit` (up to 1000) keys that begin with `prefix` and come after `after`, in byte order: one
        request."""

    def put(
        self,
        key: str,
        body: bytes,
    ) -> None:
        """Writes over whatever is there: for caches only."""

    def delete(
        self,
        keys: Iterable[str],
    ) -> None:
        """Deletes; keys that are not there are fine."""

    def close(self) -> None: ...


class Shipper(Protocol):
    """Brings what is in the outbox into the remote, and proves it (`open_shipper`). `fence`: who
    writes; set it anew when the lease was taken anew."""

    fence: Fence

    def ship(self, *, now_ms: int, force: bool = False) -> Shipped:
        """Ships full segments, old ones (`ship_after_ms`), or all (`force`). Resumable: killed anywhere, the next
        call ends in the same state. Sends nothing to the remote when nothing is due. LostRaceError is handled inside;
        raises DeposedError, ForeignStateError, DamagedArchiveError and what Remote and LocalStore raise."""

    def due(self, now_ms: int, outbox: Outbox | None = None) -> bool:
        """Whether `ship` without force would ship something; `outbox`: what waits, where that was just asked."""

    def prove(self, below: StreamId | None, *, start: StreamId = FIRST_ID) -> Receipt:
        """The receipt for a trim: up to which id (at most `below`, exclusive) every record that was added is proven.

        `start`: the first id in the stream; segments of [start, bound) that this process did not read back are read
        now. With `trim_after: local` no request is made. The caller bounds `below` by what it knows to be unstorable.
        Raises DamagedArchiveError where the archive is not what its log says."""

    def watermark(self) -> str | None:
        """The ``EVT`` id of the newest archived record as this host knows it."""


class LiveTail(Protocol):
    """What is still in the stream, for readers: pages of raw entries from `start` on (inclusive)."""

    def pages(self, start: StreamId, end: StreamId) -> Iterator[Sequence[RawEntry]]: ...

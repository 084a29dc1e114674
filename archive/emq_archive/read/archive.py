"""Reading: the archive and then the live tail in one order, without a gap and without a double."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import merge as merge_by
from itertools import islice
from typing import Protocol

import emq_archive.redact
from emq_archive.chunk import Chunk
from emq_archive.errors import DamagedArchiveError
from emq_archive.local.catalog import Catalog
from emq_archive.local.reading import again_when_moved
from emq_archive.local.store import SqlStore
from emq_archive.log.commit import Segment
from emq_archive.log.log import CommitLog
from emq_archive.log.reconcile import Matches, compare
from emq_archive.merge import SortedSource, merge
from emq_archive.model import FIRST_ID, LAST_ID, RawEntry, Record, Redact, StreamId, StreamRef, Writer, next_id, show_id
from emq_archive.ports import Remote
from emq_archive.read.bloom import groups_with_job
from emq_archive.remote.file import RemoteFile
from emq_archive.segment import group_range, open_segment, row_groups
from emq_ops.protocol import ids
from emq_ops.protocol.errors import BadInputError, one_line


class LiveSource(Protocol):
    """The stream itself, for readers."""

    def window(self, start: StreamId, end: StreamId) -> tuple[list[RawEntry], StreamId]:
        """The lowest entries of [start, end], and up to which id they are all that there were."""

    def first(self) -> StreamId | None:
        """The lowest id that stands in it now, None when it is empty."""


@dataclass(slots=True)
class Looked:
    """What a read cost: `groups` row groups of `of` in the segments that could hold something."""

    groups: int = 0
    of: int = 0


class Archive:
    """Reads one stream's archive. `remote` None: the local database alone; `live` None: no live tail (dead jobs have
    none). `redact`: what is done to live records before they are handed out."""

    def __init__(
        self,
        local: SqlStore,
        remote: Remote | None,
        ref: StreamRef,
        *,
        live: LiveSource | None = None,
        redact: Redact = emq_archive.redact.NOTHING,
    ) -> None:
        self.local = local
        self.remote = remote
        self.ref = ref
        self.live = live
        self.redact = redact
        self.catalog = Catalog(local, ref)
        self.log = CommitLog(self.catalog, remote, Writer("")) if remote is not None else None
        self.looked = Looked()
        self.holes: list[str] | None = None
        """Set to a list, and segments that can't be read are named in it, and the rest is given; else they raise."""

    def read(
        self,
        start: StreamId | None = None,
        end: StreamId | None = None,
        *,
        job: str | None = None,
        limit: int | None = None,
    ) -> Iterator[Record]:
        """Records with start <= id <= end, of `job` alone if given, at most `limit`, in order of id and incarnation.

        An id that was used again by a stream made anew comes once for each of its records. Raises what the stores and
        the server raise, DamagedArchiveError for a segment that is not what the log says.
        """
        low, high = start or FIRST_ID, end or LAST_ID
        if job is not None and self.ref.kind == "dead":
            low, high = _dead_range(job, low, high)
        if self.live is None:
            self._sync()
        yield from islice(self._all(low, high, job), limit)

    def _sync(self) -> None:
        if self.log is not None:
            self.log.read()

    def _all(self, low: StreamId, high: StreamId, job: str | None) -> Iterator[Record]:
        if self.live is None:
            yield from self._archived(low, high, job)
            return
        at: StreamId | None = low
        synced = False
        while at is not None and at <= high:
            # The live page first: what leaves the stream after this is in the archive before it leaves.
            page, upto = self.live.window(at, high)
            first = self.live.first()
            if not synced or first is None or first > at:
                self._sync()
                synced = True
            live = self._live_records(page, job)
            yield from (r for r, _ in self._joined(self._archived(at, upto, job), live))
            at = next_id(upto)

    def tail(self) -> Iterator[Record]:
        """Only what is in the stream and not in the archive, in order."""
        at = self.live.first() if self.live is not None else None
        while at is not None and self.live is not None:
            page, upto = self.live.window(at, LAST_ID)
            if not page:
                return
            self._sync()
            live = self._live_records(page, None)
            yield from (r for r, tail in self._joined(self._archived(at, upto, None), live) if tail)
            at = next_id(upto)

    def only_here(self, segments: Sequence[Segment], stored: Sequence[tuple[int, Chunk]]) -> list[tuple[int, Chunk]]:
        """Of `stored` (incarnation and records of the outbox), what no segment holds: another host may have shipped
        the same records."""
        assert self.remote is not None
        chunks = {_Span(chunk.first, chunk.last, i): chunk for i, (_, chunk) in enumerate(stored)}
        matches = {span: Matches() for span in chunks}
        ever = self.catalog.redactions()
        for segment in segments:
            if any(s.first <= segment.last and s.last >= segment.first for s in chunks) and not self.catalog.held(
                segment
            ):
                source = RemoteFile(self.remote, segment.key, segment.bytes)
                compare(open_segment(source, segment.key), segment, chunks, matches, ever, self.ref.kind)
        out = []
        for (incarnation, chunk), match in zip(stored, matches.values(), strict=True):
            left = [i for i in range(len(chunk)) if i not in match.found]
            if left:
                out.append((incarnation, chunk.take(left)))
        return out

    def _live_records(self, page: Sequence[RawEntry], job: str | None) -> list[Record]:
        """Live records that may be handed out; an erased job's stay hidden."""
        erased = self.catalog.erased()
        out = []
        for entry in page:
            record = Record.from_entry(entry, kind=self.ref.kind)
            if (job is None or record.job == job) and not _erased(record, erased):
                out.append(record)
        return out

    def _joined(self, archived: Iterator[Record], live: list[Record]) -> Iterator[tuple[Record, bool]]:
        """Both in order, and whether a record is of the live tail; one that is archived comes once, as such."""
        ever = self.catalog.redactions() if live else []
        waiting = deque(live)
        alike: list[Record] = []
        for record in archived:
            while waiting and waiting[0].id < record.id:
                yield from self._alone(waiting.popleft(), alike, ever)
            if alike and alike[0].id != record.id:
                alike = []
            alike.append(record)
            yield record, False
        while waiting:
            yield from self._alone(waiting.popleft(), alike, ever)

    def _alone(self, record: Record, alike: Sequence[Record], ever: Sequence[Redact]) -> Iterator[tuple[Record, bool]]:
        """A live record, unless one of those with its id in the archive is the same."""
        before = [other for other in alike if other.id == record.id]
        if any(emq_archive.redact.same(other.fields, record.fields, ever, self.ref.kind) for other in before):
            return
        incarnation = max((other.incarnation + 1 for other in before), default=self.catalog.incarnation())
        fields = record.fields
        if self.redact:
            entry = emq_archive.redact.apply([[b"", [x for pair in fields for x in pair]]], self.redact, self.ref.kind)[
                0
            ]
            fields = tuple(zip(entry[1][::2], entry[1][1::2], strict=True))
        yield Record(record.id, fields, incarnation, self.ref.kind), True

    def _archived(self, low: StreamId, high: StreamId, job: str | None) -> Iterator[Record]:
        yield from again_when_moved(lambda since: merge(self._runs(since, high, job)), low, None)

    def _runs(self, low: StreamId, high: StreamId, job: str | None) -> Iterator[SortedSource]:
        stored = self.local.runs(self.ref, low, high, job=job)
        if self.remote is None:
            return stored
        away = (
            SortedSource(segment.first, partial(self._records, segment, low, high, job))
            for segment in self.catalog.segments(low, high, job=job)
            if not self.catalog.held(segment)
        )
        return merge_by(stored, away, key=lambda run: run.first)

    def _records(self, segment: Segment, low: StreamId, high: StreamId, job: str | None) -> Iterator[Record]:
        """Of a segment that is not here: only the row groups that can hold something are fetched."""
        try:
            yield from self._readable(segment, low, high, job)
        except DamagedArchiveError as fault:
            if self.holes is None:
                raise
            self.holes.append(hole(segment, fault))

    def _readable(self, segment: Segment, low: StreamId, high: StreamId, job: str | None) -> Iterator[Record]:
        assert self.remote is not None
        source = RemoteFile(self.remote, segment.key, segment.bytes)
        file = open_segment(source, segment.key)
        groups = [g for g in range(file.num_row_groups) if _overlaps(group_range(file, g), low, high)]
        if job is not None:
            wanted = set(groups_with_job(source, file.metadata, job))
            groups = [g for g in groups if g in wanted]
        self.looked.of += file.num_row_groups
        self.looked.groups += len(groups)
        erased = self.catalog.erased()  # it may not be rewritten yet
        for chunk in row_groups(file, segment.key, groups):
            for record in chunk.records(segment.incarnation, self.ref.kind):
                if low <= record.id <= high and (job is None or record.job == job) and not _erased(record, erased):
                    yield record


def hole(segment: Segment, fault: DamagedArchiveError) -> str:
    """A line about a segment that can't be read."""
    ends = f"{show_id(segment.first)} to {show_id(segment.last)}"
    return one_line(f"{segment.records} records from {ends} can't be had: {fault.what}")


@dataclass(frozen=True, slots=True)
class _Span:
    first: StreamId
    last: StreamId
    number: int


def _erased(record: Record, erased: dict[bytes, StreamId]) -> bool:
    named = record.first(b"job") if erased else None
    return named is not None and named in erased and record.id <= erased[named]


def _overlaps(there: tuple[StreamId, StreamId], low: StreamId, high: StreamId) -> bool:
    return there[0] <= high and there[1] >= low


def _dead_range(job: str, low: StreamId, high: StreamId) -> tuple[StreamId, StreamId]:
    """A dead job's records have ids that are made of its own: see `model.dead_id`."""
    try:
        branded = ids.parse(job)
    except BadInputError:
        return low, high
    seq = (branded.snowflake & ids.MAX_LOW) << 42
    return max(low, (branded.unix_ms, seq)), min(high, (branded.unix_ms, seq | ((1 << 42) - 1)))

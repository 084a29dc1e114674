"""`query`: SQL over one view ``records`` of local rows, remote segments and the live tail.

DuckDB reads the segments through a pyarrow dataset over the remote as every other reader has it: no extension is
loaded, and no other client of the store. Row groups that can't hold what is asked for are left out by their statistics,
and by the filters of the job column.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds

from emq_archive.checked import CheckedFile, Recent
from emq_archive.chunk import Chunk
from emq_archive.errors import DamagedArchiveError
from emq_archive.log.commit import Segment
from emq_archive.model import RawEntry, Record, StreamId
from emq_archive.ports import Remote
from emq_archive.read.archive import Archive, Looked, hole
from emq_archive.read.bloom import groups_with_job
from emq_archive.read.filters import job_asked_for
from emq_archive.remote.file import RemoteFile
from emq_archive.segment import schema, table_of
from emq_ops.protocol import deadline
from emq_ops.protocol.errors import BadInputError, DeadlineError, EmqError

_PAGE = 1000
COLUMNS = (*schema().names, "queue", "stream", "stored")
"""Of the view: a segment's columns, and where a record is: ``remote``, ``local`` (not shipped) or ``live``."""


ATTEMPTS = 3
"""Of a query whose segments are replaced while it runs."""
SECONDS = 60.0
MEMORY = "1GiB"
"""What DuckDB may take, which spills nothing to disk."""


class Query:
    """An open view ``records``. `looked` counts the row groups that scans read. Close it after use.

    A query ends after `seconds`, and when DuckDB needs more than `memory` (``512MiB``). It sees this view alone: no
    file, no network, no extension, no setting.
    """

    def __init__(self, archive: Archive, *, seconds: float = SECONDS, memory: str = MEMORY) -> None:
        self.looked = Looked()
        self._archive, self._seconds = archive, seconds
        self._late, self._recent = False, Recent()
        ref, catalog = archive.ref, archive.catalog
        # The tail first: what leaves the stream after this is in the archive before it leaves.
        live = list(_tables(archive.tail(), ref.kind))
        self._lsn = archive.log.read().lsn if archive.log is not None else 0
        segments, here = catalog.view(everything=archive.remote is None)
        if archive.remote is not None and archive.holes is not None:
            there = archive.remote.sizes([segment.key for segment in segments])
            for segment in [s for s in segments if there.get(s.key) != s.bytes]:
                what = DamagedArchiveError(
                    f"segment {segment.key} is missing, or not of its size", faults=(segment.key,)
                )
                archive.holes.append(hole(segment, what))
                segments.remove(segment)
        if archive.remote is not None:
            here = archive.only_here(segments, here)
        self._connection = duckdb.connect(
            config={
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
                "memory_limit": memory,
                "temp_directory": "",
            }
        )
        self._connection.execute("SET python_enable_replacements = false")
        self._connection.execute("SET TimeZone = 'UTC'")
        parts = {
            "local": pa.concat_tables([schema().empty_table(), *(table_of(c, i, ref.kind) for i, c in here)]),
            "live": pa.concat_tables([schema().empty_table(), *live]),
        }
        if segments and archive.remote is not None:
            parts["remote"] = self._dataset(archive.remote, segments)
        for name, part in parts.items():
            self._connection.register(f"_{name}", part)
        names = f"{_quoted(ref.queue)} AS queue, {_quoted(ref.stream)} AS stream"
        # A segment may still hold what is erased, where the erasure broke off; the other parts do not.
        left = {"remote": _not_erased(catalog.erased())}
        union = " UNION ALL ".join(
            f"SELECT *, {names}, '{name}' AS stored FROM _{name}{left.get(name, '')}" for name in parts
        )
        self._connection.execute(f"CREATE VIEW records AS {union}")
        self._connection.execute("SET enable_external_access = false")
        self._connection.execute("SET lock_configuration = true")

    def outdated(self) -> bool:
        """Whether others changed the archive since this was opened: segments expired, or were merged and deleted."""
        log = self._archive.log
        return log is not None and log.read().lsn != self._lsn

    def run(self, sql: str, parameters: Sequence[Any] = ()) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
        """Column names and rows. Raises BadInputError with DuckDB's own words for SQL that it refuses or that takes too
        much memory, DamagedArchiveError for a segment that can't be read, DeadlineError."""
        try:
            with self._in_time():
                done = self._connection.execute(sql, list(parameters))
        except duckdb.Error as fault:
            raise self._fault(fault) from fault
        if done is None:  # nothing but blanks and comments
            raise BadInputError("no query", where=sql, fix="such as: select count(*) from records")
        columns = [column[0] for column in done.description or []]
        return columns, self._rows(done)

    def _rows(self, done: Any) -> Iterator[tuple[Any, ...]]:
        while True:
            try:
                with self._in_time():
                    page = done.fetchmany(_PAGE)
            except duckdb.Error as fault:
                raise self._fault(fault) from fault
            if not page:
                return
            yield from page

    @contextlib.contextmanager
    def _in_time(self) -> Iterator[None]:
        """Interrupts DuckDB when the time is up, which it counts over all calls."""
        begun = time.monotonic()
        left = min(self._seconds, deadline.within(self._seconds) or 0.0)
        timer = threading.Timer(max(0.0, left), self._interrupt)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            self._seconds -= time.monotonic() - begun

    def _interrupt(self) -> None:
        self._late = True
        self._connection.interrupt()

    def _fault(self, fault: duckdb.Error) -> EmqError:
        """What went wrong: the time or the memory, reading a segment; else the query."""
        if self._late:
            return DeadlineError("the query took longer than it may", fix="ask for less, or give a longer --timeout")
        if isinstance(fault, duckdb.OutOfMemoryException):
            fix = "ask for less (fewer columns, an earlier WHERE), or give more --memory"
            return BadInputError("the query needs more memory than it may have", fix=fix)
        if self._recent.fault is not None:
            return self._recent.fault
        text = str(fault)
        return BadInputError(f"the query is refused: {text.splitlines()[0]}", fix="the view is called `records`")

    def _dataset(self, remote: Remote, segments: Sequence[Segment]) -> ds.Dataset:
        # Columns are read whole, one by one: only so can each be looked through before it is unpacked.
        form = ds.ParquetFileFormat(default_fragment_scan_options=ds.ParquetFragmentScanOptions(pre_buffer=False))
        until = time.monotonic() + (deadline.within(self._seconds) or 0.0)
        parts = []
        for segment in segments:
            source = RemoteFile(remote, segment.key, segment.bytes, until=until)
            file = self._recent.add(CheckedFile(source, segment.key, schema()))
            # What is true of the whole file, so that it is not opened for nothing.
            between = (ds.field("ms") >= pa.scalar(segment.first[0], pa.uint64())) & (
                ds.field("ms") <= pa.scalar(segment.last[0], pa.uint64())
            )
            parts.append((segment, source, form.make_fragment(file, partition_expression=between)))
        found = _Pruned([fragment for _, _, fragment in parts], schema(), form)
        found.prepare(parts, self.looked)
        return found

    def close(self) -> None:
        """Ends the connection."""
        self._connection.close()

    def __enter__(self) -> Query:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextlib.contextmanager
def asked(
    archive: Archive, sql: str, *, seconds: float = SECONDS, memory: str = MEMORY
) -> Iterator[tuple[list[str], Iterator[tuple[Any, ...]]]]:
    """Column names and rows of one query, begun anew where segments expired, or were merged and deleted, meanwhile.
    Raises what `Query` raises."""
    for last in (attempt == ATTEMPTS - 1 for attempt in range(ATTEMPTS)):
        if archive.holes:
            archive.holes.clear()
        with Query(archive, seconds=seconds, memory=memory) as query:
            try:
                found = query.run(sql)
            except DamagedArchiveError:
                if last or not query.outdated():
                    raise
                continue
            if archive.holes and not last and query.outdated():
                continue
            yield found
            return


class _Pruned(ds.FileSystemDataset):  # type: ignore[misc]  # pyarrow has no types
    """A dataset whose scans leave out row groups by statistics and, where one job is asked for, by its filter."""

    def prepare(self, parts: Sequence[tuple[Segment, RemoteFile, Any]], looked: Looked) -> None:
        """The parts that the constructor of the base can't take."""
        self._parts, self._looked = parts, looked

    def scanner(self, **options: Any) -> Any:
        """As the base's: DuckDB calls it with the columns and the filter that it needs."""
        wanted = options.get("filter")
        if wanted is None:
            return super().scanner(**options)
        job = job_asked_for(str(wanted))
        kept = []
        for segment, source, fragment in self._parts:
            if job is not None and segment.job_min is not None and not segment.job_min <= job <= str(segment.job_max):
                continue
            if not list(ds.FileSystemDataset([fragment], self.schema, self.format).get_fragments(filter=wanted)):
                continue
            fragment.ensure_complete_metadata()
            self._looked.of += fragment.metadata.num_row_groups
            near = fragment.subset(filter=wanted)
            groups = [group.id for group in near.row_groups]
            if job is not None and groups:
                possible = set(groups_with_job(source, fragment.metadata, job))
                groups = [group for group in groups if group in possible]
            self._looked.groups += len(groups)
            if groups:
                kept.append(fragment.subset(row_group_ids=groups))
        return ds.FileSystemDataset(kept, self.schema, self.format).scanner(**options)


def _tables(records: Iterator[Record], kind: str) -> Iterator[pa.Table]:
    """Records as tables of some thousand rows."""
    held: list[RawEntry] = []
    incarnation = 0
    for record in records:
        if held and (len(held) >= _PAGE or record.incarnation != incarnation):
            yield table_of(Chunk.of(held), incarnation, kind)
            held = []
        incarnation = record.incarnation
        held.append([record.stream_id.encode("ascii"), [x for pair in record.fields for x in pair]])
    if held:
        yield table_of(Chunk.of(held), incarnation, kind)


def _not_erased(erased: Mapping[bytes, StreamId]) -> str:
    """A condition that leaves out erased jobs, up to the id that the erasure says."""
    one = "job IS DISTINCT FROM {} OR ms > {} OR (ms = {} AND seq > {})"
    terms = [
        one.format(_quoted(job.decode("utf-8")), upto[0], upto[0], upto[1]) for job, upto in sorted(erased.items())
    ]
    return " WHERE " + " AND ".join(f"({term})" for term in terms) if terms else ""


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"

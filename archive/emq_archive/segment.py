"""Segments: records as one Parquet object, the same records always as the same bytes (README, *Segments*)."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from emq_archive.arrow import pa, pc, pq
from emq_archive.checked import CheckedFile
from emq_archive.chunk import Chunk
from emq_archive.columns import Picker, as_evt, as_number, as_text, times_of
from emq_archive.errors import DamagedArchiveError
from emq_archive.local.rows import day_of
from emq_archive.log.commit import Segment, day_text, folder
from emq_archive.model import StreamId, StreamRef, show_id

ROW_GROUP = 65_536
ROW_GROUP_BYTES = 64 * 1024 * 1024
HASH_DIGITS = 16

_BLOOM_FPP = 0.01


@cache
def _field() -> pa.DataType:
    return pa.struct([pa.field("name", pa.binary(), nullable=False), pa.field("value", pa.binary(), nullable=False)])


@cache
def schema() -> pa.Schema:
    """The columns of a segment."""
    return pa.schema(
        [
            pa.field("ms", pa.uint64(), nullable=False),
            pa.field("seq", pa.uint64(), nullable=False),
            pa.field("incarnation", pa.int32(), nullable=False),
            pa.field("time", pa.timestamp("ms", "UTC"), nullable=False),
            pa.field("evt", pa.string()),
            pa.field("job", pa.string()),
            pa.field("outcome", pa.string()),
            pa.field("attempts", pa.int64()),
            pa.field("result", pa.binary()),
            pa.field("error", pa.binary()),
            pa.field("group", pa.string()),
            pa.field("fields", pa.list_(pa.field("element", _field(), nullable=False)), nullable=False),
        ]
    )


@cache
def _writing() -> dict[str, Any]:
    return {
        "compression": "zstd",
        "compression_level": 3,
        "version": "2.6",
        "store_schema": False,
        "use_dictionary": [
            "incarnation",
            "outcome",
            "attempts",
            "group",
            "error",
            "result",
            "fields.list.element.name",
        ],
        "column_encoding": {
            "ms": "DELTA_BINARY_PACKED",
            "seq": "DELTA_BINARY_PACKED",
            "time": "DELTA_BINARY_PACKED",
            "evt": "DELTA_BYTE_ARRAY",
            "job": "DELTA_BYTE_ARRAY",
        },
        "write_statistics": ["ms", "seq", "incarnation", "time", "evt", "job", "outcome", "attempts", "group"],
        "sorting_columns": [pq.SortingColumn(0), pq.SortingColumn(1)],
    }


def table_of(chunk: Chunk, incarnation: int, kind: str) -> pa.Table:
    """A chunk in the segments' columns."""
    size = len(chunk)
    picker = Picker(chunk)
    fields = pa.StructArray.from_arrays([chunk.names, chunk.values], fields=list(_field()))
    if kind == "dead":
        outcome = pa.repeat(pa.scalar("dead", pa.string()), size)
        names = (b"row:attempts", b"", b"row:last_error", b"row:group")
    else:
        outcome = as_text(picker.get(b"outcome"))
        names = (b"attempts", b"result", b"error", b"group")
    columns = [
        chunk.ms,
        chunk.seq,
        pa.repeat(pa.scalar(incarnation, pa.int32()), size),
        times_of(chunk, kind, picker).cast(schema().field("time").type),
        as_evt(picker.get(b"id")) if kind == "stream" else pa.nulls(size, pa.string()),
        as_text(picker.get(b"job")),
        outcome,
        as_number(picker.get(names[0])),
        picker.get(names[1]) if kind == "stream" else pa.nulls(size, pa.binary()),
        picker.get(names[2]),
        as_text(picker.get(names[3])),
        pa.ListArray.from_arrays(chunk.ends, fields, type=schema().field("fields").type),
    ]
    return pa.Table.from_arrays(columns, schema=schema())


def chunk_of(table: pa.Table) -> Chunk:
    """Back from `table_of`; needs the columns ms, seq and fields."""
    table = table.combine_chunks()

    def column(name: str) -> Any:
        found = table.column(name)
        return found.chunk(0) if found.num_chunks else pa.array([], found.type)

    fields = column("fields")
    pairs = fields.flatten()
    names, values = pairs.flatten() if len(pairs) else (pa.array([], pa.binary()), pa.array([], pa.binary()))
    return Chunk(column("ms"), column("seq"), pc.list_value_length(fields), names, values)


class SegmentWriter:
    """Collects chunks of one incarnation and one UTC day, in order, and becomes a segment."""

    def __init__(self, ref: StreamRef, incarnation: int) -> None:
        self.ref = ref
        self.incarnation = incarnation
        self.records = 0
        self.weight = 0
        self._out = io.BytesIO()
        self._writer: pq.ParquetWriter | None = None
        self._held: list[Chunk] = []
        self._held_records = 0
        self._held_weight = 0
        self._first: StreamId | None = None
        self._last: StreamId | None = None
        self._times: list[int] = []
        self._jobs: list[str] = []
        self._jobs_plain = True
        self._evt: str | None = None

    def add(self, chunk: Chunk) -> None:
        """Takes over the next records."""
        if not len(chunk):
            return
        if self._last is not None and chunk.first <= self._last:
            raise ValueError("records of a segment must go up")
        self._first, self._last = self._first or chunk.first, chunk.last
        self.records += len(chunk)
        self.weight += chunk.weight
        self._held.append(chunk)
        self._held_records += len(chunk)
        self._held_weight += chunk.weight
        while self._held_records >= ROW_GROUP:
            whole = Chunk.concat(self._held)
            rest = whole.slice(ROW_GROUP, len(whole) - ROW_GROUP)
            self._flush(whole.slice(0, ROW_GROUP))
            self._held, self._held_records, self._held_weight = [rest], len(rest), rest.weight
        if self._held_weight >= ROW_GROUP_BYTES:
            self._flush(Chunk.concat(self._held))
            self._held, self._held_records, self._held_weight = [], 0, 0

    def _flush(self, chunk: Chunk) -> None:
        if not len(chunk):
            return
        table = table_of(chunk, self.incarnation, self.ref.kind)
        if self._writer is None:
            # One size for all row groups of a segment, so that a short one does not carry a large filter.
            bloom = {"job": {"ndv": len(chunk), "fpp": _BLOOM_FPP}}
            self._writer = pq.ParquetWriter(self._out, schema(), bloom_filter_options=bloom, **_writing())
        self._writer.write_table(table, row_group_size=len(chunk))
        times = pc.min_max(table.column("time").cast(pa.int64())).as_py()
        self._times += (times["min"], times["max"])
        jobs = pc.drop_null(table.column("job"))
        if pc.all(pc.string_is_ascii(jobs)).as_py() is False or _lost(chunk, len(jobs)):
            self._jobs_plain = False
        elif len(jobs):
            ends = pc.min_max(jobs).as_py()
            self._jobs += (ends["min"], ends["max"])
        evts = pc.drop_null(table.column("evt"))
        if len(evts):
            self._evt = evts[-1].as_py()

    def close(self, lsn: int = 0) -> tuple[Segment, bytes]:
        """The segment and its bytes. At least one record must have been added."""
        self._flush(Chunk.concat(self._held))
        if self._writer is None or self._first is None or self._last is None:
            raise ValueError("a segment has at least one record")
        self._writer.close()
        body = self._out.getvalue()
        digest = hashlib.sha256(body).hexdigest()
        day = day_of(self._first[0])
        name = f"{show_id(self._first)}-{show_id(self._last)}-{digest[:HASH_DIGITS]}.parquet"
        segment = Segment(
            lsn=lsn,
            key=f"{folder(self.ref)}date={day_text(day)}/{name}",
            sha256=digest,
            bytes=len(body),
            weight=self.weight,
            records=self.records,
            first=self._first,
            last=self._last,
            incarnation=self.incarnation,
            day=day,
            time_min=min(self._times),
            time_max=max(self._times),
            # Engines compare texts by bytes, databases by their own rules: only plain ASCII is told.
            job_min=min(self._jobs) if self._jobs and self._jobs_plain else None,
            job_max=max(self._jobs) if self._jobs and self._jobs_plain else None,
            evt=self._evt,
        )
        return segment, body


def _lost(chunk: Chunk, texts: int) -> bool:
    """Whether some job is no text, and so in no column."""
    jobs = Picker(chunk).get(b"job")
    return bool(len(jobs) - jobs.null_count != texts)


def write_segment(ref: StreamRef, incarnation: int, chunks: Iterable[Chunk]) -> tuple[Segment, bytes]:
    """The segment of these records (one UTC day, in order)."""
    writer = SegmentWriter(ref, incarnation)
    for chunk in chunks:
        writer.add(chunk)
    return writer.close()


def open_segment(source: Any, key: str) -> pq.ParquetFile:
    """A segment's reader over bytes or a file-like object, which hands out no column that unpacks to more than it may.
    Raises DamagedArchiveError naming `key`."""
    checked = CheckedFile(source if hasattr(source, "read") else io.BytesIO(source), key, schema())
    return pq.ParquetFile(checked, metadata=checked.metadata, pre_buffer=False)


def row_groups(file: pq.ParquetFile, key: str, only: Iterable[int] | None = None) -> Iterator[Chunk]:
    """The records of a segment, a row group at a time (of `only` these)."""
    for group in range(file.num_row_groups) if only is None else only:
        try:
            yield chunk_of(file.read_row_group(group, columns=["ms", "seq", "fields"], use_threads=False))
        except (pa.ArrowException, OSError, ValueError) as fault:
            raise DamagedArchiveError(
                f"segment {key} can't be read in row group {group} ({type(fault).__name__})", faults=(key,)
            ) from fault


def group_range(file: pq.ParquetFile, group: int) -> tuple[StreamId, StreamId]:
    """Between which ids the records of a row group are, by its statistics."""
    meta = file.metadata.row_group(group)
    ms, seq = meta.column(0).statistics, meta.column(1).statistics
    if not all(stats is not None and stats.has_min_max for stats in (ms, seq)):  # none of ours; so it may hold any
        return (0, 0), ((1 << 64) - 1, (1 << 64) - 1)
    low, high = int(ms.min), int(ms.max)
    if low == high:
        return (low, int(seq.min)), (high, int(seq.max))
    return (low, 0), (high, (1 << 64) - 1)

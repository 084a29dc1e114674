"""Many records as columns: what travels between a page of the server, a row of the local database and a segment.

The stored form of a chunk (README, *The local database*): one tag byte (0 as it is, 1 zstd), the body's length as eight
bytes little-endian, the body: ``records`` and ``pairs`` (u64 each), then the columns one after the other: ms (u64 a
record), seq (u64 a record), pairs of each record (i32), length of each name (i32), length of each value (i32), all
names, all values. Numbers are little-endian.
"""

from __future__ import annotations

import hashlib
import struct
import sys
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain
from typing import Any, Literal

from emq_archive.arrow import pa, pc
from emq_archive.codec import Columns, columns_of
from emq_archive.model import Pair, RawEntry, Record, StreamId

if sys.byteorder != "little":  # the buffers below are written as they lie in memory
    raise ImportError("emq_archive runs on little-endian machines only")

_HEAD = struct.Struct("<BQ")
_COUNTS = struct.Struct("<QQ")
_SMALL = 512
PAIR_OVERHEAD = 8
RECORD_OVERHEAD = 24


@cache
def _codec() -> Any:
    return pa.Codec("zstd", compression_level=1)


@cache
def _most() -> Any:
    return pa.array(range(65_536), pa.int32())


def counting(count: int) -> Any:
    """0 .. count - 1 (int32)."""
    return _most().slice(0, count) if count <= len(_most()) else pa.array(range(count), pa.int32())


def _halved(fields: Sequence[Sequence[bytes]]) -> Any:
    """How many pairs each entry has."""
    lengths = array("i", map(len, fields))
    texts = pa.Array.from_buffers(pa.int32(), len(lengths), [None, pa.py_buffer(lengths)])
    return pc.shift_right(texts, pa.scalar(1, pa.int32()))


def _offsets(lengths: pa.Array) -> pa.Array:
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])


def _texts(lengths: pa.Array, data: Any) -> pa.Array:
    return pa.BinaryArray.from_buffers(pa.binary(), len(lengths), [None, _offsets(lengths).buffers()[1], data])


def _numbers(column: Any) -> memoryview:
    width = column.type.bit_width // 8
    return memoryview(column.buffers()[1])[column.offset * width : (column.offset + len(column)) * width]


def _joined(texts: Any) -> memoryview:
    if not len(texts):
        return memoryview(b"")
    _, ends, data = texts.buffers()
    view = memoryview(ends).cast("i")
    return memoryview(data)[view[texts.offset] : view[texts.offset + len(texts)]]


@dataclass(frozen=True)
class Chunk:
    """`ms`, `seq` (uint64) and `pairs` (int32) a record; `names`, `values` (binary) a pair, in the records' order."""

    ms: Any
    seq: Any
    pairs: Any
    names: Any
    values: Any

    @classmethod
    def of(cls, entries: Sequence[RawEntry]) -> Chunk:
        """From raw replies of the server. Raises ValueError for what is no entry."""
        parts = pc.split_pattern(pa.array([e[0] for e in entries], pa.string()), "-").flatten().cast(pa.uint64())
        if len(parts) != 2 * len(entries):
            raise ValueError("an entry's id is not <ms>-<seq>")
        fields = [e[1] for e in entries]
        flat = list(chain.from_iterable(fields))
        index = pc.multiply(counting(len(entries)), 2)
        return cls(
            parts.take(index),
            parts.take(pc.add(index, 1)),
            _halved(fields),
            pa.array(flat[::2], pa.binary()),
            pa.array(flat[1::2], pa.binary()),
        )

    @classmethod
    def of_columns(
        cls, ids: Sequence[StreamId], pairs: Sequence[int], names: Sequence[bytes], values: Sequence[bytes]
    ) -> Chunk:
        """From each record's id and how many pairs it has, and all names and values."""
        return cls(
            pa.array([ms for ms, _ in ids], pa.uint64()),
            pa.array([seq for _, seq in ids], pa.uint64()),
            pa.array(pairs, pa.int32()),
            pa.array(names, pa.binary()),
            pa.array(values, pa.binary()),
        )

    @classmethod
    def concat(cls, chunks: Sequence[Chunk]) -> Chunk:
        """One after the other; the caller sees to the order."""
        if len(chunks) == 1:
            return chunks[0]
        if not chunks:
            return cls.of([])
        columns = ("ms", "seq", "pairs", "names", "values")
        return cls(*(pa.concat_arrays([getattr(c, name) for c in chunks]) for name in columns))

    def __len__(self) -> int:
        return len(self.ms)

    @cached_property
    def weight(self) -> int:
        """About what the records take uncompressed."""
        texts = sum(pc.sum(pc.binary_length(t)).as_py() or 0 for t in (self.names, self.values))
        return int(texts) + PAIR_OVERHEAD * len(self.names) + RECORD_OVERHEAD * len(self)

    @cached_property
    def ends(self) -> Any:
        """Where each record's pairs begin, and one more (int32, ``len(self) + 1``)."""
        return _offsets(self.pairs)

    @cached_property
    def starts(self) -> list[int]:
        return self.ends.to_pylist()  # type: ignore[no-any-return]  # pyarrow has no types

    @property
    def first(self) -> StreamId:
        return self.id(0)

    @property
    def last(self) -> StreamId:
        return self.id(len(self) - 1)

    def id(self, i: int) -> StreamId:
        return self.ms[i].as_py(), self.seq[i].as_py()

    def ids(self) -> list[StreamId]:
        """All ids, in order."""
        return list(zip(self.ms.to_pylist(), self.seq.to_pylist(), strict=True))

    @property
    def sorted(self) -> bool:
        """Whether the ids go up strictly."""
        n = len(self) - 1
        if n < 1:
            return True
        low, high = self.ms.slice(0, n), self.ms.slice(1, n)
        up = pc.greater(self.seq.slice(1, n), self.seq.slice(0, n))
        return bool(pc.all(pc.or_(pc.greater(high, low), pc.and_(pc.equal(high, low), up))).as_py())

    def fields(self, i: int) -> tuple[Pair, ...]:
        """The pairs of record `i`."""
        a, n = self.starts[i], self.starts[i + 1] - self.starts[i]
        return tuple(zip(self.names.slice(a, n).to_pylist(), self.values.slice(a, n).to_pylist(), strict=True))

    def slice(self, start: int, length: int) -> Chunk:
        """Records `start` .. `start + length`, without copying."""
        length = max(0, min(length, len(self) - start))
        a, b = self.ends[start].as_py(), self.ends[start + length].as_py()
        return Chunk(
            self.ms.slice(start, length),
            self.seq.slice(start, length),
            self.pairs.slice(start, length),
            self.names.slice(a, b - a),
            self.values.slice(a, b - a),
        )

    def take(self, indices: Sequence[int]) -> Chunk:
        """The records at these places, in that order."""
        if len(indices) == len(self) and (indices == range(len(self)) or all(i == j for i, j in enumerate(indices))):
            return self
        at = pa.array(indices, pa.int64())
        pairs = pa.array(
            list(chain.from_iterable(range(self.starts[i], self.starts[i + 1]) for i in indices)), pa.int64()
        )
        return Chunk(
            self.ms.take(at), self.seq.take(at), self.pairs.take(at), self.names.take(pairs), self.values.take(pairs)
        )

    def entries(self) -> list[RawEntry]:
        """Back to the form that the server sends."""
        names, values, starts = self.names.to_pylist(), self.values.to_pylist(), self.starts
        return [
            [f"{ms}-{seq}".encode("ascii"), [x for j in range(a, b) for x in (names[j], values[j])]]
            for (ms, seq), a, b in zip(self.ids(), starts, starts[1:], strict=False)
        ]

    def records(self, incarnation: int, kind: Literal["stream", "dead"]) -> Iterator[Record]:
        """As records, in order."""
        names, values, starts = self.names.to_pylist(), self.values.to_pylist(), self.starts
        for stream_id, a, b in zip(self.ids(), starts, starts[1:], strict=False):
            yield Record(stream_id, tuple(zip(names[a:b], values[a:b], strict=True)), incarnation, kind)

    def usual(self, i: int, kind: str) -> Columns:
        """The usual fields of record `i`."""
        return columns_of(self.ms[i].as_py(), [x for pair in self.fields(i) for x in pair], kind)

    def encode(self) -> bytes:
        """The stored form."""
        counts = _COUNTS.pack(len(self), len(self.names))
        body = b"".join([counts, _numbers(self.ms), _numbers(self.seq), *self._fields_as_bytes()])
        if len(body) < _SMALL:
            return _HEAD.pack(0, len(body)) + body
        return _HEAD.pack(1, len(body)) + _codec().compress(body, asbytes=True)  # type: ignore[no-any-return]  # no types

    def _fields_as_bytes(self) -> list[memoryview]:
        """Pairs a record, lengths of names and of values (i32 each), all names, all values."""
        lengths = (self.pairs, pc.binary_length(self.names), pc.binary_length(self.values))
        return [*map(_numbers, lengths), _joined(self.names), _joined(self.values)]

    def digest(self, ids: Sequence[bytes]) -> str:
        """SHA-1 (hex) of the records, whose ids as the server wrote them are `ids`, as ``span_digest`` of
        ``lua/lib/stream.lua`` makes it."""
        made = hashlib.sha1(b" ".join(ids) + b"\n", usedforsecurity=False)
        for part in self._fields_as_bytes():
            made.update(part)
        return made.hexdigest()

    @classmethod
    def decode(cls, stored: bytes) -> Chunk:
        """Back from `encode`. Raises ValueError for what it did not make."""
        tag, size = _HEAD.unpack_from(stored)
        rest = pa.py_buffer(stored).slice(_HEAD.size)
        body = rest if tag == 0 else _codec().decompress(rest, decompressed_size=size)
        records, pairs = _COUNTS.unpack_from(memoryview(body))
        at = _COUNTS.size

        def column(kind: Any, count: int) -> Any:
            nonlocal at
            array = pa.Array.from_buffers(kind, count, [None, body.slice(at, count * kind.bit_width // 8)])
            at += count * kind.bit_width // 8
            return array

        ms, seq = column(pa.uint64(), records), column(pa.uint64(), records)
        counts = column(pa.int32(), records)
        name_lengths, value_lengths = column(pa.int32(), pairs), column(pa.int32(), pairs)
        name_bytes = pc.sum(name_lengths).as_py() or 0
        value_bytes = pc.sum(value_lengths).as_py() or 0
        if tag > 1 or at + name_bytes + value_bytes != body.size or (pc.sum(counts).as_py() or 0) != pairs:
            raise ValueError("a stored chunk is damaged")
        names = _texts(name_lengths, body.slice(at, name_bytes))
        values = _texts(value_lengths, body.slice(at + name_bytes, value_bytes))
        return cls(ms, seq, counts, names, values)


class Batch:
    """Pages on their way into one transaction: columns at once, so that memory stays small."""

    def __init__(self) -> None:
        self._chunks: list[Chunk] = []
        self.records = 0
        self.bytes = 0

    def append(self, entries: Sequence[RawEntry]) -> None:
        """Takes over one page of raw replies, in the stream's order."""
        if entries:
            self.take(Chunk.of(entries))

    def take(self, chunk: Chunk) -> None:
        """Takes over records that are columns already."""
        if len(chunk):
            self._chunks.append(chunk)
            self.records += len(chunk)
            self.bytes += chunk.weight

    def chunk(self) -> Chunk:
        """All of it."""
        return Chunk.concat(self._chunks)


def ordered(parts: Sequence[Chunk]) -> Chunk:
    """Chunks of one incarnation as one, in order."""
    whole = Chunk.concat(sorted((part for part in parts if len(part)), key=lambda c: c.first))
    if whole.sorted:
        return whole
    ids = whole.ids()
    return whole.take(sorted(range(len(ids)), key=ids.__getitem__))

"""What a column of a segment unpacks to, by the headers of its pages, before anything of it is unpacked.

A footer only claims sizes and encodings; readers go by what stands before each page. By a dictionary, or by prefixes
that values share, kilobytes say millions of long values, and by runs a few bytes say millions of short ones.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from emq_archive.arrow import pa, pc, pq

MAX_BYTES = 1024 * 1024 * 1024
"""Of one column in a row group, unpacked: one of ours has its 64 MiB, and one record more."""
MAX_PAGES = 10_000
"""Of one column in a row group: ours have one for each MiB, or 20,000 values."""
_AT_ONCE = 256 * 1024 * 1024
_SLOT = 8
"""Bytes that a value takes besides its text: an offset, or the number itself."""
_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
_BY_DICTIONARY, _BY_PREFIX = (2, 8), 7
_PLAIN = (0, 3, 4, 5, 9)
"""Encodings of which a page's size and count say all: values, runs of flags, packed numbers."""


class Bomb(ValueError):
    """Why a column is none that emq-ops wrote."""


@dataclass(slots=True)
class Weighed:
    """What page headers say: `size` is certain; each of `spread` values may take up to `longest` more."""

    size: int = 0
    values: int = 0
    by_dictionary: int = 0
    by_prefix: int = 0
    longest: int = 0

    @property
    def most(self) -> int:
        return self.size + _SLOT * self.values + (self.by_dictionary + self.by_prefix) * self.longest


def check(stored: bytes, metadata: pq.FileMetaData, group: int, column: int) -> None:
    """Raises Bomb where a column (its bytes as they are `stored`) unpacks to more than `MAX_BYTES`, or to another
    number of values than the footer says."""
    told, rows = metadata.row_group(group).column(column), metadata.row_group(group).num_rows
    found = weigh(stored)
    if found.values != told.num_values or not 0 <= rows <= found.values:
        raise Bomb("has pages of another number of values than it says")
    if told.physical_type != "BYTE_ARRAY":
        found.longest = 0
    if found.most > MAX_BYTES:
        source = io.BufferedReader(_Lone(stored, _start(told)))
        total = sum(_parts(source, metadata, group, told.path_in_schema, found))
        if total > MAX_BYTES:
            raise Bomb(f"has values that unpack to more than {MAX_BYTES} bytes")


def span(told: Any) -> tuple[int, int]:
    """Where a column of a row group begins, and how many bytes it has."""
    return _start(told), int(told.total_compressed_size)


def _start(told: Any) -> int:
    dictionary = told.dictionary_page_offset
    return int(told.data_page_offset if dictionary is None else min(dictionary, told.data_page_offset))


def weigh(stored: bytes) -> Weighed:
    """Raises Bomb for pages that hold too much for certain, or that can't be told."""
    found, at, pages = Weighed(), 0, 0
    while at < len(stored):
        pages += 1
        if pages > MAX_PAGES:
            raise Bomb(f"has more than {MAX_PAGES} pages in a column")
        header, at = _header(stored, at)
        kind, size, packed = header.get(1), header.get(2, -1), header.get(3, -1)
        if size < 0 or packed < 0 or packed > len(stored) - at:
            raise Bomb("has a page of no size")
        at += packed
        found.size += size
        if kind == _DICTIONARY:
            found.longest = max(found.longest, size)
        elif kind in (_DATA, _DATA_V2):
            _count(found, header.get(5 if kind == _DATA else 8), 2 if kind == _DATA else 4, size)
        if found.size + _SLOT * found.values > MAX_BYTES:
            raise Bomb(f"has a column that unpacks to more than {MAX_BYTES} bytes")
    return found


def _count(found: Weighed, told: Any, at: int, size: int) -> None:
    values, encoding = (told.get(1, -1), told.get(at)) if isinstance(told, dict) else (-1, None)
    if values < 0:
        raise Bomb("has a page of no values")
    found.values += values
    if encoding in _BY_DICTIONARY:
        found.by_dictionary += values
    elif encoding == _BY_PREFIX:
        found.by_prefix += values
        found.longest = max(found.longest, size)
    elif encoding not in _PLAIN:
        raise Bomb("has a page of an encoding that ours never have")


def _parts(source: Any, metadata: pq.FileMetaData, group: int, path: str, weighed: Weighed) -> Iterator[int]:
    """The bytes of the values, some at a time, none unpacked that are said by a dictionary."""
    if not weighed.by_prefix:
        file = pq.ParquetFile(source, metadata=metadata, pre_buffer=False, read_dictionary=[path])
        for chunk in file.read_row_group(group, columns=[path], use_threads=False).column(0).chunks:
            texts = _leaf(chunk)
            lengths = pc.binary_length(texts.dictionary).cast(pa.int64())
            yield pc.sum(pc.take(lengths, texts.indices)).as_py() or 0
        return
    some = max(1, _AT_ONCE // max(1, weighed.longest))
    if "." in path or weighed.values // some > 1_000_000:
        raise Bomb("packs values so that they may unpack to more than it says")
    file, total = pq.ParquetFile(source, metadata=metadata, pre_buffer=False), 0
    for batch in file.iter_batches(some, row_groups=[group], columns=[path], use_threads=False):
        part = pc.sum(pc.binary_length(batch.column(0))).as_py() or 0
        yield part
        total += part
        if total > MAX_BYTES:
            return


def _leaf(array: Any) -> Any:
    while not pa.types.is_dictionary(array.type):
        array = array.flatten() if pa.types.is_list(array.type) else array.field(0)
    return array


class _Lone(io.RawIOBase):
    """A file of which only one column's bytes are there."""

    def __init__(self, stored: bytes, start: int) -> None:
        super().__init__()
        self._stored, self._start, self._at = stored, start, 0

    def readinto(self, buffer: Any) -> int:
        at = self._at - self._start
        part = self._stored[at : at + len(buffer)] if at >= 0 else b""
        buffer[: len(part)] = part
        self._at += len(part)
        return len(part)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._start + len(self._stored)}[whence]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


def _header(data: bytes, at: int) -> tuple[dict[int, Any], int]:
    """A page's header (Thrift, compact), and where it ends. Raises Bomb."""
    try:
        return _struct(data, at, 0)
    except IndexError:
        raise Bomb("has a page whose header can't be read") from None


def _struct(data: bytes, at: int, depth: int) -> tuple[dict[int, Any], int]:
    if depth > 4:
        raise Bomb("has a page whose header can't be read")
    found: dict[int, Any] = {}
    name = 0
    while head := data[at]:
        at += 1
        step, kind = head >> 4, head & 15
        if step:
            name += step
        else:
            name, at = _number(data, at)
        if kind in (1, 2):  # true, false
            found[name] = kind == 1
        elif kind in (4, 5, 6):
            found[name], at = _number(data, at)
        elif kind == 8:
            size, at = _unsigned(data, at)
            at += size
        elif kind == 12:
            found[name], at = _struct(data, at, depth + 1)
        elif kind == 3:
            at += 1
        elif kind == 7:
            at += 8
        else:
            raise Bomb("has a page whose header can't be read")
    return found, at + 1


def _unsigned(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise Bomb("has a page whose header can't be read")


def _number(data: bytes, at: int) -> tuple[int, int]:
    value, at = _unsigned(data, at)
    return (value >> 1) ^ -(value & 1), at

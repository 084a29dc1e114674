"""Bloom filters of a segment's ``job`` column: which row groups can hold a job, without reading them.

The filters are Parquet's own (split blocks, XXH64), so other engines use them too; pyarrow writes them and does not
read them.
"""

from __future__ import annotations

from typing import Any

from emq_archive.remote.file import RemoteFile
from emq_archive.segment import schema

_SALTS = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)
_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_ALL = (1 << 64) - 1


def _rotate(x: int, by: int) -> int:
    return ((x << by) | (x >> (64 - by))) & _ALL


def _round(acc: int, lane: int) -> int:
    return _rotate((acc + lane * _P2) & _ALL, 31) * _P1 & _ALL


def xxh64(data: bytes) -> int:
    """XXH64 with seed 0."""
    size, at = len(data), 0
    if size >= 32:
        lanes = [(_P1 + _P2) & _ALL, _P2, 0, -_P1 & _ALL]
        while at <= size - 32:
            for i in range(4):
                lanes[i] = _round(lanes[i], int.from_bytes(data[at + 8 * i : at + 8 * i + 8], "little"))
            at += 32
        acc = sum(_rotate(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & _ALL
        for lane in lanes:
            acc = ((acc ^ _round(0, lane)) * _P1 + _P4) & _ALL
    else:
        acc = _P5
    acc = (acc + size) & _ALL
    while at <= size - 8:
        acc ^= _round(0, int.from_bytes(data[at : at + 8], "little"))
        acc = (_rotate(acc, 27) * _P1 + _P4) & _ALL
        at += 8
    if at <= size - 4:
        acc ^= int.from_bytes(data[at : at + 4], "little") * _P1 & _ALL
        acc = (_rotate(acc, 23) * _P2 + _P3) & _ALL
        at += 4
    for byte in data[at:]:
        acc ^= byte * _P5 & _ALL
        acc = _rotate(acc, 11) * _P1 & _ALL
    acc = (acc ^ (acc >> 33)) * _P2 & _ALL
    acc = (acc ^ (acc >> 29)) * _P3 & _ALL
    return acc ^ (acc >> 32)


def maybe_in(bits: bytes, value: bytes) -> bool:
    """Whether a split-block filter may hold `value`; False is certain."""
    hashed = xxh64(value)
    block = ((hashed >> 32) * (len(bits) // 32)) >> 32
    low = hashed & 0xFFFFFFFF
    for word, salt in enumerate(_SALTS):
        at = 32 * block + 4 * word
        if not int.from_bytes(bits[at : at + 4], "little") >> ((low * salt & 0xFFFFFFFF) >> 27) & 1:
            return False
    return True


def groups_with_job(source: RemoteFile, metadata: Any, job: str) -> list[int]:
    """The row groups that may hold records of `job`, by the column's statistics and filters."""
    found = []
    for group in range(metadata.num_row_groups):
        column = metadata.row_group(group).column(schema().get_field_index("job"))
        stats = column.statistics
        if stats is not None and stats.has_min_max and not stats.min <= job <= stats.max:
            continue
        if stats is not None and stats.has_null_count and stats.null_count == column.num_values:
            continue
        offset, length = column.bloom_filter_offset, column.bloom_filter_length
        if offset is not None and length:
            bits = _bits(source.at(offset, length))
            if bits is not None and not maybe_in(bits, job.encode("utf-8")):
                continue
        found.append(group)
    return found


def _bits(stored: bytes) -> bytes | None:
    """The bit set behind a filter's header (Thrift compact, the set's length first); None: not understood."""
    if not stored or stored[0] != 0x15:
        return None
    size = shift = 0
    for byte in stored[1:6]:
        size |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    size >>= 1  # zigzag, and never negative
    return stored[-size:] if 0 < size < len(stored) and size % 32 == 0 else None

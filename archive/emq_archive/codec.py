"""The stored form of an entry's fields, and what the columns read out of them.

Packed fields, the canonical and only form: one tag byte, the number of texts as unsigned LEB128, their lengths, the
texts themselves one after the other (name, value, name, value ...). Tag 1: every text is shorter than 256 bytes and a
length is one byte. Tag 4: a length is four bytes, little-endian. Tag 1 is used wherever it can be.

An id as a key: ms and seq, eight bytes each, big-endian, so that byte order is the stream's order for all 64 bits.
"""

from __future__ import annotations

import array
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from emq_ops.protocol import ids

_PAIR = struct.Struct(">QQ")
MAX_SIGNED = (1 << 63) - 1
MAX_TIME_MS = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z: a later time is told as this one; the id keeps the truth."""


def id_key(ms: int, seq: int) -> bytes:
    """16 bytes whose order is the order of ids."""
    return _PAIR.pack(ms, seq)


def id_of(key: bytes) -> tuple[int, int]:
    """Back from `id_key`."""
    ms, seq = _PAIR.unpack(key)
    return ms, seq


def _leb(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def pack(flat: Sequence[bytes]) -> bytes:
    """``[name, value, ...]`` as one text. Raises OverflowError for a text of 4 GiB or more."""
    count = len(flat)
    head = bytes((1, count)) if count < 128 else b"\x01" + _leb(count)
    try:
        return head + bytes(map(len, flat)) + b"".join(flat)
    except ValueError:  # a text of 256 bytes or more
        lengths = array.array("I", map(len, flat))
        if sys.byteorder == "big":
            lengths.byteswap()
        return b"\x04" + head[1:] + lengths.tobytes() + b"".join(flat)


def unpack(packed: bytes) -> list[bytes]:
    """Back from `pack`. Raises ValueError for what `pack` did not make."""
    count = shift = 0
    at = 1
    while True:
        byte = packed[at]
        at += 1
        count |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    lengths: Sequence[int]
    if packed[0] == 1:
        lengths = packed[at : at + count]
        at += count
    elif packed[0] == 4:
        wide = array.array("I", packed[at : at + 4 * count])
        if sys.byteorder == "big":
            wide.byteswap()
        lengths = wide
        at += 4 * count
    else:
        raise ValueError("packed fields begin with no known tag")
    out = []
    for length in lengths:
        out.append(packed[at : at + length])
        at += length
    if at != len(packed) or len(out) != count:
        raise ValueError("packed fields end too early or too late")
    return out


def without_facts(packed: bytes) -> list[bytes]:
    """The fields of a dead job without the facts of its death."""
    flat = unpack(packed)
    return [x for i in range(0, len(flat), 2) if not flat[i].startswith(b"fact:") for x in flat[i : i + 2]]


@dataclass(frozen=True, slots=True)
class Columns:
    """The usual fields of a record; None where absent or not of their type. `time_ms` is at most MAX_TIME_MS."""

    time_ms: int
    evt: str | None
    job: str | None
    outcome: str | None
    attempts: int | None
    result: bytes | None
    error: bytes | None
    group: str | None


def as_utf8(value: bytes | None) -> str | None:
    """A field as text, None where it is none."""
    if value is None:
        return None
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _number(value: bytes | None) -> int | None:
    if value is None or not value.isdigit() or len(value) > 19:
        return None
    number = int(value)
    return number if number <= MAX_SIGNED else None


def columns_of(ms: int, flat: Sequence[bytes], kind: str = "stream") -> Columns:
    """The columns of an entry: the first field of a name counts."""
    # Built from the back, so that the first of a repeated name stays.
    found = dict(zip(flat[-2::-2], flat[::-2], strict=True))
    if kind == "dead":
        seen = _number(found.get(b"fact:seen_at"))
        return Columns(
            min(ms if seen is None else seen, MAX_TIME_MS),
            None,
            as_utf8(found.get(b"job")),
            "dead",
            _number(found.get(b"row:attempts")),
            None,
            found.get(b"row:last_error"),
            as_utf8(found.get(b"row:group")),
        )
    evt = as_utf8(found.get(b"id"))
    if evt is not None and not (evt.startswith("EVT") and ids.is_valid(evt)):
        evt = None
    return Columns(
        min(ms, MAX_TIME_MS),
        evt,
        as_utf8(found.get(b"job")),
        as_utf8(found.get(b"outcome")),
        _number(found.get(b"attempts")),
        found.get(b"result"),
        found.get(b"error"),
        as_utf8(found.get(b"group")),
    )

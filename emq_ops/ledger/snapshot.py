"""A row with its logs as one value: what a job was when it was seen dead.

Packed by the archive's codec as ``[number of fields, name, value, ..., log line, ...]``; led by ``z`` and deflated
where that pays, else by ``p``.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from emq_archive import codec

_WORTH_DEFLATING = 512
_CHEAP = 1

Pair = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`row`: the fields in the order the server gave them, bytes; `logs`: lines, oldest first."""

    row: tuple[Pair, ...] = ()
    logs: tuple[bytes, ...] = ()

    def get(self, name: bytes) -> bytes | None:
        """The value of a field, None where the row has none."""
        return next((value for field, value in self.row if field == name), None)


def pack(flat_row: Sequence[bytes], logs: Sequence[bytes]) -> bytes:
    """From raw replies of ``HGETALL`` and ``LRANGE``."""
    packed = codec.pack([b"%d" % (len(flat_row) // 2), *flat_row, *logs])
    if len(packed) < _WORTH_DEFLATING:
        return b"p" + packed
    deflated = zlib.compress(packed, _CHEAP)
    return b"z" + deflated if len(deflated) < len(packed) else b"p" + packed


def unpack(packed: bytes) -> Snapshot:
    """Back from `pack`. Raises ValueError for what `pack` did not make."""
    body = zlib.decompress(packed[1:]) if packed[:1] == b"z" else packed[1:]
    count, *flat = codec.unpack(body)
    fields = 2 * int(count)
    return Snapshot(tuple(zip(flat[:fields:2], flat[1:fields:2], strict=True)), tuple(flat[fields:]))

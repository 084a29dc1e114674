"""A row with its logs as one value: what a job was when it was seen dead.

Packed by the archive's codec as ``[number of fields, name, value, ..., log line, ...]``; led by ``z`` and deflated
where that pays, else by ``p``. A flow parent that was trimmed stands there whole, with its books: led by ``w``, and
packed as `whole` says.
"""

from __future__ import annotations

import functools
import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from emq_archive import codec
from emq_archive.dead_digest import dead_digest
from emq_ops.ledger import whole as wholes
from emq_ops.ledger.whole import Whole

_WORTH_DEFLATING = 512
_CHEAP = 1
_WHOLE = b"w"

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


def seal(names: Sequence[bytes], digest: str) -> bytes:
    """What a row with its logs is known by, 28 bytes: rows with one seal have the same fields, in one order, and the
    same logs. `digest`: `dead_digest` of the values of `names` and of the logs."""
    return _hash_of(tuple(names)) + bytes.fromhex(digest)


@functools.lru_cache(maxsize=64)
def _hash_of(names: tuple[bytes, ...]) -> bytes:
    return hashlib.sha256(codec.pack(names)).digest()[:8]


def seal_of(flat_row: Sequence[bytes], logs: Sequence[bytes]) -> bytes:
    """The seal of what `pack` takes."""
    return seal(flat_row[::2], dead_digest(flat_row[1::2], logs))


def unpack(packed: bytes) -> Snapshot:
    """Back from `pack`, without the books of `pack_whole`. Raises ValueError for what these did not make."""
    row, logs = unpack_flat(packed)
    return Snapshot(tuple(zip(row[::2], row[1::2], strict=True)), tuple(logs))


def unpack_flat(packed: bytes) -> tuple[Sequence[bytes], Sequence[bytes]]:
    """The same as `pack` took it: the row as name, value ..., and the log lines."""
    if packed[:1] == _WHOLE:
        whole = wholes.unpack(packed[1:])
        return whole.row, whole.logs
    body = zlib.decompress(packed[1:]) if packed[:1] == b"z" else packed[1:]
    count, *flat = codec.unpack(body)
    fields = 2 * int(count)
    return flat[:fields], flat[fields:]


def pack_whole(whole: Whole) -> bytes:
    """A job with its books, to stand in place of its snapshot."""
    return _WHOLE + wholes.pack(whole)


def unpack_whole(packed: bytes) -> Whole:
    """Back from `pack_whole`, or from `pack`: then it has no books. Raises ValueError for what these did not make."""
    if packed[:1] == _WHOLE:
        return wholes.unpack(packed[1:])
    snapshot = unpack(packed)
    return Whole(tuple(text for pair in snapshot.row for text in pair), snapshot.logs)

"""A job with all that stands beside its row, as one value, so that a removal can be undone to the byte.

Packed by the archive's codec as ``[texts of the row, texts of the log, dependencies? (0/1), texts of each flow book,
row ..., log ..., dependencies, books ...]``; led by ``z`` and deflated where that pays, else by ``p``.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from emq_archive import codec

_WORTH_DEFLATING = 512
_CHEAP = 1
FLOW_BOOKS = ("processed", "failed", "unsuccessful")


@dataclass(frozen=True, slots=True)
class Whole:
    """`row` and each of `books` (FLOW_BOOKS): names and values in turn, in the server's order; `logs`: oldest first;
    `dependencies`: a flow parent's count, None where there is none."""

    row: tuple[bytes, ...] = ()
    logs: tuple[bytes, ...] = ()
    dependencies: bytes | None = None
    books: tuple[tuple[bytes, ...], ...] = ((), (), ())

    def get(self, name: bytes) -> bytes | None:
        """The value of a field of the row, None where it has none."""
        return next((v for n, v in zip(self.row[::2], self.row[1::2], strict=True) if n == name), None)


def pack(whole: Whole) -> bytes:
    """One value of it."""
    counts = [len(whole.row), len(whole.logs), int(whole.dependencies is not None), *map(len, whole.books)]
    texts: list[bytes] = [b"%d" % count for count in counts]
    texts += [*whole.row, *whole.logs]
    texts += [] if whole.dependencies is None else [whole.dependencies]
    for book in whole.books:
        texts += book
    packed = codec.pack(texts)
    if len(packed) >= _WORTH_DEFLATING:
        deflated = zlib.compress(packed, _CHEAP)
        if len(deflated) < len(packed):
            return b"z" + deflated
    return b"p" + packed


def unpack(packed: bytes) -> Whole:
    """Back from `pack`. Raises ValueError for what `pack` did not make."""
    texts = codec.unpack(zlib.decompress(packed[1:]) if packed[:1] == b"z" else packed[1:])
    counts = [int(text) for text in texts[:6]]
    rest = iter(texts[6:])

    def take(count: int) -> tuple[bytes, ...]:
        return tuple(next(rest) for _ in range(count))

    row, logs = take(counts[0]), take(counts[1])
    dependencies = next(rest) if counts[2] else None
    return Whole(row, logs, dependencies, tuple(take(count) for count in counts[3:]))


def of_row(flat_row: Sequence[bytes], logs: Sequence[bytes]) -> Whole:
    """A job that had nothing but its row and logs."""
    return Whole(tuple(flat_row), tuple(logs))

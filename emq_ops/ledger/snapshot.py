"""A dead job as one value: row, logs, and its books as a flow parent, so that a removal can be undone to the byte.

Three stored forms, each packed by the archive's codec; ``z`` leads one that is deflated, ``p`` one that is not:

- with a death: ``[number of fields, name, value ..., log line ...]``, a job without books (`pack_row`);
- with a death, a flow parent: ``w``, then the form below (`pack_death`);
- with an act: ``[texts of the row, of the log, dependencies? (0/1), of each flow book, then these texts]``, and the
  place of a job that was not dead (`pack`).
"""

from __future__ import annotations

import functools
import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from emq_archive import codec
from emq_archive.deadjob import dead_digest

_WORTH_DEFLATING = 512
_CHEAP = 1
_WITH_BOOKS = b"w"
FLOW_BOOKS = ("processed", "failed", "unsuccessful")

Pair = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """`row` and each of `books` (FLOW_BOOKS): names and values in turn, in the server's order; `logs`: oldest first;
    `dependencies`: a flow parent's count, None where there is none; `place`: where it stood: ``pending``, ``lane``,
    ``schedule <ms>``, empty for the dead set."""

    row: tuple[bytes, ...] = ()
    logs: tuple[bytes, ...] = ()
    dependencies: bytes | None = None
    books: tuple[tuple[bytes, ...], ...] = ((), (), ())
    place: bytes = b""

    @classmethod
    def of_reply(
        cls, row: Sequence[bytes], logs: Sequence[bytes], dependencies: bytes | None, *books: Sequence[bytes]
    ) -> JobSnapshot:
        """From what a script returns of a job."""
        return cls(tuple(row), tuple(logs), dependencies, tuple(map(tuple, books)))

    @property
    def fields(self) -> list[Pair]:
        """The row in pairs."""
        return list(zip(self.row[::2], self.row[1::2], strict=True))

    def get(self, name: bytes) -> bytes | None:
        """The value of a field of the row, None where it has none."""
        return next((value for field, value in self.fields if field == name), None)


def pack(job: JobSnapshot) -> bytes:
    """The form that an act keeps."""
    counts = [len(job.row), len(job.logs), int(job.dependencies is not None), *map(len, job.books)]
    texts: list[bytes] = [b"%d" % count for count in counts]
    texts += [*job.row, *job.logs]
    texts += [] if job.dependencies is None else [job.dependencies]
    for book in job.books:
        texts += book
    if job.place:
        texts.append(job.place)
    return _deflated(codec.pack(texts))


def unpack(packed: bytes) -> JobSnapshot:
    """Back from `pack`. Raises ValueError for what `pack` did not make."""
    texts = _texts(packed)
    counts = [int(text) for text in texts[:6]]
    rest = iter(texts[6:])

    def take(count: int) -> tuple[bytes, ...]:
        return tuple(next(rest) for _ in range(count))

    row, logs = take(counts[0]), take(counts[1])
    dependencies = next(rest) if counts[2] else None
    books = tuple(take(count) for count in counts[3:])
    return JobSnapshot(row, logs, dependencies, books, next(rest, b""))


def pack_row(flat_row: Sequence[bytes], logs: Sequence[bytes]) -> bytes:
    """The form that a death keeps, from raw replies of ``HGETALL`` and ``LRANGE``."""
    return _deflated(codec.pack([b"%d" % (len(flat_row) // 2), *flat_row, *logs]))


def pack_death(job: JobSnapshot) -> bytes:
    """The form that the death of a flow parent keeps."""
    return _WITH_BOOKS + pack(job)


def unpack_death(packed: bytes) -> JobSnapshot:
    """Back from `pack_row` or `pack_death`. Raises ValueError for what these did not make."""
    if packed[:1] == _WITH_BOOKS:
        return unpack(packed[1:])
    count, *flat = _texts(packed)
    fields = 2 * int(count)
    return JobSnapshot(tuple(flat[:fields]), tuple(flat[fields:]))


def fingerprint(names: Sequence[bytes], digest: str) -> bytes:
    """What a row with its logs is known by, 28 bytes: rows with one fingerprint have the same fields, in one order, and
    the same logs. `digest`: `dead_digest` of the values of `names` and of the logs."""
    return _hash_of(tuple(names)) + bytes.fromhex(digest)


def fingerprint_of(flat_row: Sequence[bytes], logs: Sequence[bytes]) -> bytes:
    """The fingerprint of what `pack_row` takes."""
    return fingerprint(flat_row[::2], dead_digest(flat_row[1::2], logs))


@functools.lru_cache(maxsize=64)
def _hash_of(names: tuple[bytes, ...]) -> bytes:
    return hashlib.sha256(codec.pack(names)).digest()[:8]


def _deflated(packed: bytes) -> bytes:
    if len(packed) >= _WORTH_DEFLATING:
        deflated = zlib.compress(packed, _CHEAP)
        if len(deflated) < len(packed):
            return b"z" + deflated
    return b"p" + packed


def _texts(packed: bytes) -> list[bytes]:
    return codec.unpack(zlib.decompress(packed[1:]) if packed[:1] == b"z" else packed[1:])

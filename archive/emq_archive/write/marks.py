"""What stands in a stream that was read, mark by mark: where, and a digest of its very bytes.

By the marks a bound is found without reading again, and the trim proves that what it removes is what was read.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from emq_archive.model import StreamId

SPAN = 1000
"""Reads are merged into marks of at most this many entries."""
SPAN_BYTES = 512 * 1024
SLICE = 2000
"""About how many entries one call of the trim's script compares and removes, and how many bytes: about 10 ms of the
server's time (``benchmarks/fold.py`` prints it)."""
SLICE_BYTES = 1024 * 1024


@dataclass(slots=True)
class Mark:
    """`count` entries of about `weight` bytes stand from `first` to `last`. `digest` is of all of them, read in
    `counts` goes (`Chunk.digest`; chained as in ``lua/lib/stream.lua``)."""

    first: StreamId
    last: StreamId
    count: int
    digest: str
    weight: int = 0
    counts: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.counts = self.counts or [self.count]

    def extend(self, more: Mark) -> None:
        """Takes over what was read next."""
        chained = (self.digest + more.digest).encode("ascii")
        self.digest = hashlib.sha1(chained, usedforsecurity=False).hexdigest()
        self.last, self.count, self.weight = more.last, self.count + more.count, self.weight + more.weight
        self.counts += more.counts


@dataclass(frozen=True, slots=True)
class Left:
    """What a trim left of a mark: `count` entries from `first` on (0: none, -1: all of it), and their digest."""

    count: int
    first: StreamId | None = None
    digest: str = ""


class Marks:
    """Marks of the entries read in this life of a stream, in order. Memory: one mark per SPAN entries in the stream."""

    def __init__(self) -> None:
        self._marks: deque[Mark] = deque()

    def add(self, mark: Mark) -> None:
        """What was read, above everything before."""
        tail = self._marks[-1] if self._marks else None
        if tail and tail.count + mark.count <= SPAN and tail.weight + mark.weight <= SPAN_BYTES:
            tail.extend(mark)
        else:
            self._marks.append(mark)

    def put_first(self, marks: Sequence[Mark]) -> None:
        """What was read again, below everything else."""
        self._marks.extendleft(reversed(marks))

    def cut(self, head: StreamId | None) -> StreamId | None:
        """Forgets what is no longer in the stream, whose first entry is `head` now (None: it is empty). Returns the
        last id of a mark that somebody else cut: it must be read again, since no digest is known of what is left."""
        while self._marks and (head is None or self._marks[0].last < head):
            self._marks.popleft()
        return self._marks[0].last if head is not None and self._marks and head > self._marks[0].first else None

    def drop(self, last: StreamId) -> None:
        """Forgets the marks up to the one that ends with `last`."""
        while self._marks and self._marks[0].last <= last:
            self._marks.popleft()

    def clear(self) -> None:
        self._marks.clear()

    def newest(self, count: int) -> tuple[Mark, int] | None:
        """The mark that holds the `count`-th newest entry, and its place in it, 1 for the mark's newest. None where
        fewer were read."""
        left = count
        for mark in reversed(self._marks):
            if left <= mark.count:
                return mark, left
            left -= mark.count
        return None

    def below(self, bound: StreamId) -> tuple[int, Mark | None]:
        """How many entries the marks that end below `bound` hold, and the mark that it cuts through."""
        count = 0
        for mark in self._marks:
            if mark.last >= bound:
                return count, mark if mark.first < bound else None
            count += mark.count
        return count, None

    def slice(self, bound: StreamId) -> tuple[StreamId, list[Mark]]:
        """From the head on, what one call trims: a bound (exclusive) of at most `bound`, and the marks below it."""
        some, count, weight = list[Mark](), 0, 0
        for mark in self._marks:
            if mark.first >= bound:
                break
            if some and (count + mark.count > SLICE or weight + mark.weight > SLICE_BYTES):
                return mark.first, some
            some.append(mark)
            count, weight = count + mark.count, weight + mark.weight
        return bound, some

    def trimmed(self, some: Sequence[Mark], left: Sequence[Left]) -> None:
        """`some` (from the head on) were trimmed, and `left` of each is what still stands."""
        stay = list[Mark]()
        for mark, rest in zip(some, left, strict=True):
            self._marks.popleft()
            if rest.count < 0:
                stay.append(mark)
            elif rest.first is not None:
                weight = mark.weight * rest.count // mark.count
                stay.append(Mark(rest.first, mark.last, rest.count, rest.digest, weight))
        self.put_first(stay)

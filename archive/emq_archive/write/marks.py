"""Where things stand in a stream that was read: one mark a page, so that a bound can be found without reading again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from emq_archive.model import StreamId

SPAN = 1000
"""Pages are merged into marks of at most this many entries."""


@dataclass(slots=True)
class Mark:
    """`count` entries were read from `first` to `last`."""

    first: StreamId
    last: StreamId
    count: int


class Marks:
    """Marks of the entries read in this life of a stream, in order. Memory: one mark per SPAN entries in the stream."""

    def __init__(self) -> None:
        self._marks: deque[Mark] = deque()

    def add(self, first: StreamId, last: StreamId, count: int) -> None:
        """A page that was read, above all earlier ones."""
        if self._marks and self._marks[-1].count + count <= SPAN:
            tail = self._marks[-1]
            tail.last, tail.count = last, tail.count + count
        else:
            self._marks.append(Mark(first, last, count))

    def drop_below(self, head: StreamId | None) -> None:
        """Forgets what is no longer in the stream, whose first entry is `head` now (None: it is empty)."""
        while self._marks and (head is None or self._marks[0].last < head):
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

    def cuts(self, bound: StreamId, most: int) -> Iterator[StreamId]:
        """Bounds (exclusive) that rise to `bound` with about `most` entries between them."""
        since = 0
        for mark in list(self._marks):
            if mark.first >= bound:
                break
            if since and since + mark.count > most:
                yield mark.first
                since = 0
            since += mark.count
        yield bound

"""What stands in a stream, for whoever reads it: raw pages of bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from emq_archive.model import FIRST_ID, LAST_ID, RawEntry, StreamId, StreamRef, next_id, parse_id, show_id
from emq_ops.protocol.queue import Queue

PAGE = 128
"""Entries a read at most. Small pages stay in the processor's cache (they are faster than large ones), and bound the
memory of both sides when entries grow suddenly (the server builds a whole reply before it sends)."""
FIRST_PAGE = 8
"""Of the first page, when nothing is known of how large entries are; each one doubles it."""
PAGE_BYTES = 16 * 1024 * 1024
"""What a reply should not exceed, by the largest entries of the page before."""
SAMPLES = 8
WINDOW = 5000
WINDOW_BYTES = 16 * 1024 * 1024


class PageSize:
    """How many entries to ask for, so that a reply stays near PAGE_BYTES."""

    def __init__(self) -> None:
        self.count = FIRST_PAGE

    def fit(self, got: Sequence[RawEntry]) -> int:
        """About how many bytes a page holds (a few of its entries are looked at); sizes the next one by it."""
        if not got:
            return 0
        sizes = [sum(map(len, entry[1])) for entry in got[:: max(1, len(got) // SAMPLES)]]
        about = sum(sizes) * len(got) // len(sizes)
        if about > PAGE_BYTES // 8:
            self.count = max(1, min(PAGE, PAGE_BYTES // (max(sizes) + 1)))
        elif self.count < PAGE:
            self.count = min(PAGE, self.count * 2)
        return about


class LiveStream:
    """Reads one stream of one queue; remembers nothing of it."""

    def __init__(self, queue: Queue, stream: str) -> None:
        self.queue = queue
        self.ref = StreamRef(queue.name, stream)
        self.key = queue.keys.stream(stream)

    def pages(self, start: StreamId, end: StreamId) -> Iterator[Sequence[RawEntry]]:
        """Entries of [start, end], in order."""
        size = PageSize()
        begin = show_id(start)
        while True:
            count = size.count
            got = self.queue.server.read("XRANGE", self.key, begin, show_id(end), "COUNT", count)
            if got:
                yield got
            if len(got) < count or parse_id(got[-1][0]) >= end:
                return
            size.fit(got)
            begin = "(" + got[-1][0].decode("ascii")

    def window(self, start: StreamId, end: StreamId) -> tuple[list[RawEntry], StreamId]:
        """The lowest entries of [start, end], some thousands or some MiB, and up to which id (at most `end`) they are
        all that there were."""
        found: list[RawEntry] = []
        size, measure = 0, PageSize()
        for page in self.pages(start, end):
            found += page
            size += measure.fit(page)
            if len(found) >= WINDOW or size >= WINDOW_BYTES:
                return found, parse_id(found[-1][0])
        return found, end

    def first(self) -> StreamId | None:
        """The lowest id that stands in it now, None when it is empty."""
        for page in self.pages(FIRST_ID, LAST_ID):
            return parse_id(page[0][0])
        return None

    def count_upto(self, bound: StreamId, most: int) -> int:
        """How many entries stand below an id (exclusive); at most `most`."""
        count = 0
        for got in self.pages(FIRST_ID, bound):
            count += len(got) - (parse_id(got[-1][0]) == bound)
            if count >= most:
                return most
        return count

    def count_above(self, stream_id: StreamId, most: int = 10_000) -> int | None:
        """How many entries stand above an id; None where there are more than `most`."""
        count = 0
        for got in self.pages(next_id(stream_id) or stream_id, LAST_ID):
            count += len(got)
            if count > most:
                return None
        return count

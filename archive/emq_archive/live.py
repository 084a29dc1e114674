"""What is still in the stream, for readers, in bounded windows."""

from __future__ import annotations

from emq_archive.model import FIRST_ID, LAST_ID, RawEntry, StreamId, parse_id
from emq_archive.source import PageSize, StreamSource
from emq_ops.protocol.queue import Queue

WINDOW = 5000
WINDOW_BYTES = 16 * 1024 * 1024


class LiveStream:
    """Reads one stream; remembers nothing."""

    def __init__(self, queue: Queue, stream: str) -> None:
        self._source = StreamSource(queue, stream)

    def window(self, start: StreamId, end: StreamId) -> tuple[list[RawEntry], StreamId]:
        """The lowest entries of [start, end], some thousands or some MiB, and up to which id (at most `end`) they are
        all that there were."""
        found: list[RawEntry] = []
        size, measure = 0, PageSize()
        for page in self._source.pages(start, end):
            found += page
            size += measure.fit(page)
            if len(found) >= WINDOW or size >= WINDOW_BYTES:
                return found, parse_id(found[-1][0])
        return found, end

    def first(self) -> StreamId | None:
        """The lowest id that stands in it now, None when it is empty."""
        for page in self._source.pages(FIRST_ID, LAST_ID):
            return parse_id(page[0][0])
        return None

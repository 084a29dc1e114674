"""Reading a stream in raw pages: from its head once per process and stream life, from the frontier after that."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from emq_archive.chunk import Batch, Chunk
from emq_archive.live import LiveStream, PageSize
from emq_archive.model import FIRST_ID, Frontier, RawEntry, StreamId, parse_id, show_id
from emq_archive.write.facts import StreamFacts
from emq_archive.write.marks import SPAN_BYTES, Mark, Marks
from emq_ops.protocol import deadline
from emq_ops.protocol.queue import Queue

GROUP = 1000
"""Entries that become columns at once."""
BATCH_BYTES = 16 * 1024 * 1024
"""What is held at once before it goes to the local database."""


@dataclass(slots=True)
class Reading:
    """A batch of entries in order, the marks of them, and the frontier to store with it."""

    batch: Batch
    marks: list[Mark]
    frontier: Frontier


class StreamSource(LiveStream):
    """One stream of one queue. Remembers, for this process, which life of the stream it knows and how far it read.

    Not thread-safe: one driver reads it. `clock`: what time it is, unix ms, instead of the server's clock (a simulated
    one).
    """

    def __init__(self, queue: Queue, stream: str, clock: Callable[[], int] | None = None) -> None:
        super().__init__(queue, stream)
        self.facts: StreamFacts | None = None
        self.position: StreamId | None = None
        self.first_read: StreamId | None = None
        self.marks = Marks()
        self.unstorable: dict[StreamId, str] = {}
        """What was read in this life and could not be stored, and why: it must stay in the stream."""
        self.missed = 0
        """How many entries behind `missed_since` left the stream before the last reading came to them."""
        self.missed_since = FIRST_ID
        self.anew = False
        """Whether the last reading found more than was added since the one before, and so began at the head again."""
        self._whole = False  # whether reading came to the top
        self._clock = clock
        self._life = 0
        self._added = 0  # how many had been added to the stream when the entry at `position` was
        self._stored: Frontier | None = None
        self._page = PageSize()
        self._cut: StreamId | None = None  # the end of a mark that somebody else cut

    def look(self) -> StreamFacts:
        """Returns the stream's facts now, and remembers nothing."""
        return StreamFacts.of(self.queue.run("stream_facts", [self.key], readonly=True))

    def observe(self, stored: Frontier | None) -> tuple[StreamFacts, bool]:
        """The stream's facts now (one request), and whether a life of it ended since the last look. `stored` is the
        frontier in the local database. Raises DamagedError where the key is of another type."""
        facts = self.look()
        if self._clock is not None:
            facts = replace(facts, now_ms=self._clock())
        if self.facts is not None:
            ended = not facts.same_life(self.facts)
        else:
            ended = stored is not None and _fell(facts, stored)
            self._life = stored.life if stored else 0
        if ended:
            self._life += 1
            self.forget()
        self.facts, self._stored = facts, stored
        self._cut = self.marks.cut(facts.first)
        if self.position is None and facts.exists and facts.first is None:
            self.position = facts.last_generated  # nothing stands below it, and nothing can come there
        return facts, ended

    def forget(self) -> None:
        """The next cycle reads from the head of the stream again."""
        self.position = self.first_read = self._cut = None
        self.marks.clear()
        self.unstorable.clear()

    @property
    def behind(self) -> int:
        """How many entries of the stream, as of `observe`, were not read yet."""
        facts = self._seen()
        if self.position is None:
            return facts.length
        return 0 if self.position >= facts.last_generated else max(0, facts.entries_added - self._added)

    def batches(self, page: int, batch: int, enough: Callable[[], bool] = deadline.passed) -> Iterator[Reading]:
        """Everything from where reading stands to the top of the stream as of `observe`, in order. `page` and `batch`
        are entries at most. What was yielded counts as read when the next batch is asked for. Ends early, between
        pages, when `enough` says so."""
        if self._cut is not None:
            yield from self.again(self._cut)
            self._cut = None
        collected, marks = Batch(), list[Mark]()
        group: list[RawEntry] = []
        size, whole = 0, min(GROUP, batch)
        since, expected = self._since()
        known, count = self.position is not None, 0
        self.missed, self.anew = 0, False
        for got in self._pages(page, enough):
            group += got
            count += _above(got, since)
            size += self._page.fit(got)
            if len(group) >= whole or size >= SPAN_BYTES:
                _collect(group, size, collected, marks)
                group, size = [], 0
                if collected.records >= batch or collected.bytes >= BATCH_BYTES:
                    yield from self._hand_out(collected, marks)
                    collected, marks = Batch(), []
        if group:
            _collect(group, size, collected, marks)
        if marks:
            yield from self._hand_out(collected, marks)
        if known and count > expected and self._seen().removed is not None:
            self._life += 1
            self.forget()
            yield from self.batches(page, batch, enough)
            self.anew = True
            return
        if self._whole and self._seen().exists:
            # Nothing stands up to the top that was not read, also where its last entries were deleted by name.
            facts = self._seen()
            self.position, self._added = max(self.position or FIRST_ID, facts.last_generated), facts.entries_added
            self.missed = max(0, expected - count) if since is not None else 0
            self.missed_since = since or FIRST_ID

    def _since(self) -> tuple[StreamId | None, int]:
        """Up to which id this life of the stream was read, by this process or an earlier one (None: not at all), and
        how many entries were added behind it."""
        if self.position is not None:
            return self.position, self.behind
        stored = self._stored
        if stored is None or stored.last is None or stored.life != self._life:
            return None, 0
        return stored.last, max(0, self._seen().entries_added - stored.entries_added)

    def _hand_out(self, batch: Batch, marks: list[Mark]) -> Iterator[Reading]:
        facts = self._seen()
        first, last = marks[0].first, marks[-1].last
        before = facts.entries_added - facts.length if self.position is None else self._added
        added = facts.entries_added if last >= facts.last_generated else max(0, before) + batch.records
        first_read = self.first_read or first
        yield Reading(batch, marks, self._frontier(first_read, last, added))
        # The caller came back: the batch is stored.
        self.first_read, self.position, self._added = first_read, last, added
        for mark in marks:
            self.marks.add(mark)

    def again(self, last: StreamId) -> Iterator[Reading]:
        """What stands up to `last`, where a mark ends, read once more: the marks do not say what is there."""
        again = list[Mark]()
        for got in self.pages(FIRST_ID, last):
            batch, marks = Batch(), list[Mark]()
            _collect(list(got), PageSize().fit(got), batch, marks)
            again += marks
            frontier = self._frontier(self.first_read or marks[0].first, self.position or last, self._added)
            yield Reading(batch, marks, frontier)
        self.marks.drop(last)
        self.marks.put_first(again)

    def _frontier(self, first: StreamId, last: StreamId, added: int) -> Frontier:
        facts, stored = self._seen(), self._stored
        if stored is not None and stored.life == self._life:
            # Reading from the head again must not take the stored frontier back.
            last, added = max(last, stored.last or last), max(added, stored.entries_added)
        return Frontier(
            last=last,
            first=first,
            life=self._life,
            last_generated=facts.last_generated,
            entries_added=min(added, facts.entries_added),
            run_id=facts.run_id,
            folded=stored.folded if stored else 0,
            updated_ms=facts.now_ms,
        )

    def _pages(self, most: int, enough: Callable[[], bool]) -> Iterator[list[RawEntry]]:
        after, top = self.position, self._seen().last_generated
        start = "-" if after is None else "(" + show_id(after)
        end = show_id(top)
        read, key = self.queue.server.read, self.key
        self._whole = False
        while (after is None or after < top) and not enough():
            count = min(self._page.count, most)
            got = read("XRANGE", key, start, end, "COUNT", count)
            if got:
                yield got
            if len(got) < count:
                self._whole = True
                return
            raw: bytes = got[-1][0]
            start, after = "(" + raw.decode("ascii"), parse_id(raw)
        self._whole = after is not None and after >= top

    def nth_newest(self, count: int) -> StreamId | None:
        """The id of the `count`-th newest of the entries that were read and are still there; None where there are not
        so many. Where none of them was deleted by name a mark is near, else it is a walk over all of them."""
        if count < 1 or self.position is None:
            return None
        found = self.marks.newest(count)
        if found is not None and self._seen().max_deleted < found[0].first:
            mark, place = found
            return self._walk_down(mark.last, mark.first, place)
        return self._walk_down(self.position, FIRST_ID, count)

    def _walk_down(self, top: StreamId, floor: StreamId, count: int) -> StreamId | None:
        read = self.queue.server.read
        end = show_id(top)
        while True:
            most = min(count, self._page.count)
            got = read("XREVRANGE", self.key, end, show_id(floor), "COUNT", most)
            count -= len(got)
            if count == 0:
                return parse_id(got[-1][0])
            if len(got) < most:
                return None
            self._page.fit(got)
            end = "(" + got[-1][0].decode("ascii")

    def count_below(self, bound: StreamId) -> int:
        """How many entries that were read stand below an id (exclusive); at most too many, where others deleted."""
        count, cut = self.marks.below(bound)
        if cut is not None:
            for got in self.pages(cut.first, cut.last):
                count += sum(parse_id(entry[0]) < bound for entry in got)
        return min(count, self._seen().length)

    def count_unread(self, stored: Frontier) -> int:
        """How many entries stand above a stored frontier of this life; beyond 10,000 as the stream's counters say."""
        facts = self._seen()
        count = facts.length if stored.last is None else self.count_above(stored.last)
        if count is not None:
            return count
        return min(facts.length, max(0, facts.entries_added - stored.entries_added))

    def _seen(self) -> StreamFacts:
        assert self.facts is not None, "observe comes first"
        return self.facts


def _above(page: Sequence[RawEntry], since: StreamId | None) -> int:
    """How many entries of a page stand above an id."""
    if since is None or parse_id(page[-1][0]) <= since:
        return 0
    if parse_id(page[0][0]) > since:
        return len(page)
    return sum(parse_id(entry[0]) > since for entry in page)


def _collect(group: Sequence[RawEntry], size: int, batch: Batch, marks: list[Mark]) -> None:
    """Entries of about `size` bytes as columns, and a mark of each part of them that is not too large."""
    most = len(group) if size <= 2 * SPAN_BYTES else max(1, len(group) * SPAN_BYTES // size)
    for at in range(0, len(group), most):
        part = group[at : at + most]
        ids = [entry[0] for entry in part]
        chunk = Chunk.of(part)
        batch.take(chunk)
        marks.append(Mark(parse_id(ids[0]), parse_id(ids[-1]), len(part), chunk.digest(ids), chunk.weight))


def _fell(facts: StreamFacts, stored: Frontier) -> bool:
    if not facts.exists:
        return stored.last is not None
    return facts.last_generated < stored.last_generated or facts.entries_added < stored.entries_added

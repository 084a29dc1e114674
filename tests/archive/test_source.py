"""Reading a stream: pages, lives, frontiers; against a real server."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emq_archive.live import PAGE
from emq_archive.model import Frontier, StreamId, show_id
from emq_archive.source import BATCH_BYTES, StreamSource
from emq_archive.write.marks import SLICE, Left, Mark, Marks
from emq_ops.protocol.errors import DamagedError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server

TOP = 18446744073709551615


@pytest.fixture
def queue(server: Server) -> Queue:
    return Queue(server, "mail")


def add(queue: Queue, *ids: str, stream: str = "completions") -> None:
    for entry in ids:
        queue.server.write("XADD", queue.keys.stream(stream), entry, "f", entry)


def read_all(source: StreamSource, page: int = 1000, batch: int = 10_000, stored: Frontier | None = None) -> list[str]:
    """The ids of one cycle's reading."""
    source.observe(stored)
    return [show_id(i) for part in source.batches(page, batch) for i in part.batch.chunk().ids()]


def test_from_the_head_once_then_from_the_frontier(queue: Queue) -> None:
    add(queue, "1-0", "2-0", "3-0")
    source = StreamSource(queue, "completions")
    assert read_all(source) == ["1-0", "2-0", "3-0"]
    assert read_all(source) == []
    add(queue, "4-0")
    assert read_all(source) == ["4-0"]
    assert read_all(StreamSource(queue, "completions")) == ["1-0", "2-0", "3-0", "4-0"]


def test_c13_pages_and_sequences(queue: Queue) -> None:
    """C13: 64-bit sequences, numeric order within a ms, pages that end inside one ms."""
    add(queue, "99-1", "100-2", "100-10")
    source = StreamSource(queue, "completions")
    assert read_all(source) == ["99-1", "100-2", "100-10"]
    assert source.position == (100, 10)
    add(queue, *(f"100-{i}" for i in range(5)), stream="pages")
    assert read_all(StreamSource(queue, "pages"), page=2, batch=3) == [f"100-{i}" for i in range(5)]
    add(queue, f"1-{TOP}", stream="wide")
    wide = StreamSource(queue, "wide")
    assert read_all(wide) == [f"1-{TOP}"]
    assert wide.position == (1, TOP)
    add(queue, f"{TOP}-{TOP}", stream="last")
    last = StreamSource(queue, "last")
    assert read_all(last) == [f"{TOP}-{TOP}"]
    assert read_all(last) == []


def test_the_top_is_that_of_the_beginning(queue: Queue) -> None:
    add(queue, "1-0", "2-0")
    source = StreamSource(queue, "completions")
    source.observe(None)
    add(queue, "3-0")
    marks = [[(m.first, m.last, m.count) for m in part.marks] for part in source.batches(10, 10)]
    assert marks == [[((1, 0), (2, 0), 2)]]
    assert read_all(source) == ["3-0"]


def test_batches_are_as_large_as_asked_for(queue: Queue) -> None:
    add(queue, *(f"{i}-0" for i in range(1, 31)))
    source = StreamSource(queue, "completions")
    source.observe(None)
    assert [part.batch.records for part in source.batches(7, 10)] == [14, 14, 2]


def test_a_batch_counts_as_read_when_the_next_is_asked_for(queue: Queue) -> None:
    add(queue, "1-0", "2-0", "3-0")
    source = StreamSource(queue, "completions")
    source.observe(None)
    reading = source.batches(1000, 10_000)
    next(reading)
    assert source.position is None, "a batch that was never stored is read again"
    assert read_all(source) == ["1-0", "2-0", "3-0"]


@pytest.mark.parametrize(
    "again",
    [
        pytest.param(("1-0", "2-0"), id="lower last id"),
        pytest.param(("2-0", "3-0", "4-0"), id="fewer added"),
        pytest.param(("1-0", "2-0", "3-0", "4-0"), id="same ids, other bytes"),
    ],
)
def test_a_stream_made_anew_is_read_from_its_head(queue: Queue, again: tuple[str, ...]) -> None:
    add(queue, "1-0", "2-0", "3-0", "4-0")
    source = StreamSource(queue, "completions")
    read_all(source)
    assert source.observe(None)[1] is False
    queue.server.write("DEL", queue.keys.stream("completions"))
    for entry in again:
        queue.server.write("XADD", queue.keys.stream("completions"), entry, "other", "bytes")
    assert source.observe(None)[1] is True
    assert [show_id(i) for part in source.batches(9, 9) for i in part.batch.chunk().ids()] == list(again)


def test_a_stream_that_is_gone_and_comes_again(queue: Queue) -> None:
    source = StreamSource(queue, "completions")
    assert source.observe(None)[1] is False
    assert read_all(source) == []
    add(queue, "5-0")
    assert read_all(source) == ["5-0"]
    queue.server.write("DEL", queue.keys.stream("completions"))
    facts, ended = source.observe(None)
    assert (facts.exists, ended) == (False, True)
    add(queue, "5-0", "6-0")
    assert read_all(source) == ["5-0", "6-0"]


def test_an_empty_stream_costs_no_read(queue: Queue) -> None:
    add(queue, "5-0")
    queue.server.write("XTRIM", queue.keys.stream("completions"), "MAXLEN", "=", 0)
    source = StreamSource(queue, "completions")
    assert read_all(source) == []
    assert source.position == (5, 0)
    add(queue, "5-1")
    assert read_all(source) == ["5-1"]


def test_an_earlier_process_left_a_frontier(queue: Queue) -> None:
    add(queue, "1-0", "2-0", "3-0")
    first = StreamSource(queue, "completions")
    first.observe(None)
    [part] = first.batches(9, 9)
    stored = part.frontier
    assert (stored.last, stored.first, stored.life, stored.entries_added) == ((3, 0), (1, 0), 0, 3)
    second = StreamSource(queue, "completions")
    assert second.observe(stored)[1] is False
    parts = list(second.batches(9, 2))
    # Reading from the head again does not take the stored frontier back.
    assert {p.frontier.last for p in parts} == {(3, 0)}
    third = StreamSource(queue, "completions")
    assert third.observe(replace(stored, last_generated=(9, 0)))[1] is True
    assert {p.frontier.life for p in third.batches(9, 2)} == {1}


def test_what_is_still_to_read(queue: Queue) -> None:
    add(queue, *(f"{i}-0" for i in range(1, 301)))
    queue.server.write("XTRIM", queue.keys.stream("completions"), "MINID", "=", "11-0")
    source = StreamSource(queue, "completions")
    source.observe(None)
    assert source.behind == 290
    reading = source.batches(50, 1)
    next(reading)
    assert source.behind == 290
    next(reading)
    assert source.behind == 282  # the first page is a small one, and each doubles it
    assert len(list(reading)) == 6
    assert source.behind == 0
    add(queue, "301-0", "302-0")
    source.observe(None)
    assert source.behind == 2


def test_no_page_is_read_when_the_time_is_up(queue: Queue) -> None:
    add(queue, "1-0")
    source = StreamSource(queue, "completions")
    source.observe(None)
    assert list(source.batches(9, 9, lambda: True)) == []
    assert source.behind == 1


def test_entries_that_grow_suddenly_shrink_the_pages(queue: Queue) -> None:
    key = queue.keys.stream("completions")
    add(queue, *(f"{i}-0" for i in range(1, 1200)))
    for i in range(1200, 1400):
        queue.server.write("XADD", key, f"{i}-0", "f", b"x" * (1 << 18))
    source = StreamSource(queue, "completions")
    source.observe(None)
    sizes = [part.batch.bytes for part in source.batches(1000, 10_000)]
    assert sum(sizes) > 50 << 20
    # One page of them comes before the source can know; from there on pages are small.
    assert max(sizes) <= PAGE * (1 << 18) + BATCH_BYTES // 2
    assert len(sizes) >= 2


def test_a_key_of_another_type(queue: Queue) -> None:
    queue.server.write("LPUSH", queue.keys.stream("completions"), "x")
    with pytest.raises(DamagedError, match="is a list, not a stream"):
        StreamSource(queue, "completions").observe(None)


def test_the_nth_newest(queue: Queue) -> None:
    key = queue.keys.stream("completions")
    add(queue, *(f"{i}-0" for i in range(1, 2501)))
    source = StreamSource(queue, "completions")
    read_all(source)
    assert [source.nth_newest(n) for n in (1, 999, 1001, 2500)] == [(2500, 0), (1502, 0), (1500, 0), (1, 0)]
    assert source.nth_newest(2501) is None
    # Entries deleted by name among the newest: counted by looking.
    queue.server.write("XDEL", key, "2498-0", "2400-0")
    source.observe(None)
    assert [source.nth_newest(n) for n in (2, 3, 101)] == [(2499, 0), (2497, 0), (2398, 0)]
    # Somebody else trims the head: what was read and is gone is not counted.
    queue.server.write("XTRIM", key, "MINID", "=", "2450-0")
    source.observe(None)
    assert source.nth_newest(50) == (2450, 0)
    assert source.nth_newest(51) is None


def test_the_live_tail(queue: Queue) -> None:
    add(queue, *(f"{i}-0" for i in range(1, 301)))
    source = StreamSource(queue, "completions")
    got = [entry[0] for page in source.pages((20, 0), (280, 0)) for entry in page]
    assert got == [f"{i}-0".encode() for i in range(20, 281)]
    assert source.count_above((290, 0)) == 10
    assert source.count_above((0, 0), most=100) is None


spans = st.lists(st.integers(1, 700), min_size=1, max_size=30)


@given(spans, st.integers(1, 9000))
def test_marks_find_what_a_list_would(counts: list[int], nth: int) -> None:
    marks, ids, at = Marks(), list[StreamId](), 1
    for count in counts:
        marks.add(Mark((at, 0), (at + count - 1, 0), count, "", weight=count))
        ids += [(i, 0) for i in range(at, at + count)]
        at += count
    found = marks.newest(nth)
    if nth > len(ids):
        assert found is None
    else:
        assert found is not None
        mark, place = found
        inside = [i for i in ids if mark.first <= i <= mark.last]
        assert len(inside) == mark.count
        assert inside[-place] == ids[-nth]
    bound = ids[-1]
    below = [i for i in ids if i < bound]
    uptos = []
    while below:
        upto, some = marks.slice(bound)
        uptos.append(upto)
        assert sum(mark.count for mark in some) <= max(SLICE, some[0].count)
        assert [i for i in below if some[0].first <= i < upto] == [i for i in below if i < upto]
        below = [i for i in below if i >= upto]
        marks.trimmed(some, [Left(0) for _ in some])
    assert uptos == sorted(set(uptos))

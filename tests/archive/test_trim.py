"""The trim script: what it checks, what it leaves, on a real server."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emq_archive.model import StreamId
from emq_archive.source import StreamSource
from emq_archive.write.trim import Trimmed, Trimmer
from emq_archive.write.watermark import Watermark
from emq_ops.protocol.errors import DamagedError, FenceError, ServerError
from emq_ops.protocol.fence import Fence
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server

STATE = "6b3f1c1e-0000-4000-8000-000000000001"
EVT = "EVT0STBBIRAKHo"
HIGHER = "EVT0STBBIRAKHp"


class Bench:
    """A stream of entries 1-0 .. n-0, read to its top."""

    def __init__(self, server: Server, entries: int = 10) -> None:
        self.server = server
        self.queue = Queue(server, "mail")
        self.key = self.queue.keys.stream("completions")
        self.watermark = Watermark(self.queue, "completions", lambda _: False)
        for i in range(1, entries + 1):
            server.write("XADD", self.key, f"{i}-0", "f", str(i))
        self.read()

    def read(self) -> None:
        """Reads the stream anew, as a driver would."""
        self.source = StreamSource(self.queue, "completions")
        self.facts, _ = self.source.observe(None)
        for _ in self.source.batches(1000, 1000):
            pass

    def trim(self, bound: StreamId, *, fence: Fence | None = None, **more: Any) -> Trimmed:
        """One slice."""
        trimmer = Trimmer(self.queue, "completions", fence, **{"run_id": self.facts.run_id, **more})
        upto, marks = self.source.marks.slice(bound)
        done = trimmer.slice(upto, marks)
        if done.verdict == "trimmed":
            self.source.marks.trimmed(marks, done.left)
        return done

    def left(self) -> list[str]:
        return [entry[0].decode() for entry in self.server.read("XRANGE", self.key, "-", "+")]

    def group(self, name: str, read: int, acked: int = 0) -> None:
        self.server.write("XGROUP", "CREATE", self.key, name, "0")
        if read:
            self.server.write("XREADGROUP", "GROUP", name, "c", "COUNT", read, "STREAMS", self.key, ">")
        for i in range(1, acked + 1):
            self.server.write("XACK", self.key, name, f"{i}-0")

    def lease(self, *, token: int = 5, span_ms: int = 60_000, run: str | None = None) -> Fence:
        """Takes the lease as a pass would, and answers its fence."""
        args = [STATE, token, span_ms, "pass", "host", "m", 1, 2, f"nonce-{token}", "", ""]
        verdict, life, *_ = self.queue.run("lease_acquire", [self.queue.keys.lease], *args)
        assert verdict == b"taken"
        return Fence(self.queue.keys, STATE, token, run or life.decode())


@pytest.fixture
def bench(server: Server) -> Bench:
    return Bench(server)


def test_exactly_what_is_below(bench: Bench) -> None:
    done = bench.trim((4, 0))
    assert (done.verdict, done.removed, done.first, done.bound) == ("trimmed", 3, (1, 0), (4, 0))
    assert bench.left()[0] == "4-0"
    assert bench.trim((4, 0)).removed == 0


def test_nothing_without_the_lease_that_stands(bench: Bench) -> None:
    fence = bench.lease()
    with pytest.raises(FenceError, match="led by pass on host"):
        bench.trim((4, 0))
    with pytest.raises(FenceError, match="token"):
        bench.trim((4, 0), fence=Fence(bench.queue.keys, STATE, 4, fence.run))
    with pytest.raises(FenceError, match="state"):
        bench.trim((4, 0), fence=Fence(bench.queue.keys, "another", 5, fence.run))
    with pytest.raises(FenceError, match="another life"):
        bench.trim((4, 0), fence=Fence(bench.queue.keys, STATE, 5, "0" * 40))
    assert len(bench.left()) == 10
    assert bench.trim((4, 0), fence=fence).removed == 3
    bench.queue.run("lease_release", [bench.queue.keys.lease], STATE, 5)
    with pytest.raises(FenceError, match="expired"):
        bench.trim((6, 0), fence=fence)
    assert bench.trim((6, 0)).removed == 2


def test_other_entries_than_were_read_are_refused(bench: Bench) -> None:
    bench.server.write("DEL", bench.key)
    assert bench.trim((4, 0)).verdict == "gone"
    # The very same ids with other bytes.
    for i in range(1, 11):
        bench.server.write("XADD", bench.key, f"{i}-0", "f", "x")
    assert bench.trim((4, 0)).verdict == "changed"
    bench.server.write("DEL", bench.key)
    # Lower ids, more of them.
    for i in range(1, 31):
        bench.server.write("XADD", bench.key, f"1-{i}", "f", "x")
    assert bench.trim((40, 0)).verdict in ("moved", "changed")
    assert len(bench.left()) == 30
    bench.read()
    assert bench.trim((40, 0)).removed == 30


@pytest.mark.parametrize("where", ["0-1", "3-1", "10-1"])
def test_an_entry_that_was_not_read_is_never_removed(bench: Bench, where: str) -> None:
    """Wherever it stands: before what was read, amid it, or behind it and below the bound."""
    dump = bench.server.read("DUMP", bench.key)
    bench.server.write("DEL", bench.key)
    for i in ["0-1", *(f"{i}-0" for i in range(1, 4)), "3-1", *(f"{i}-0" for i in range(4, 11)), "10-1"]:
        if i.endswith("-0") or i == where:
            bench.server.write("XADD", bench.key, i, "f", i.split("-")[0])
    assert bench.trim((11, 0)).verdict == "changed"
    assert len(bench.left()) == 11
    bench.server.write("RESTORE", bench.key, 0, dump, "REPLACE")
    assert bench.trim((11, 0)).removed == 10


def test_another_life_of_the_server_is_refused(bench: Bench) -> None:
    assert bench.trim((4, 0), run_id="0" * 40).verdict == "life"


def test_a_head_that_somebody_moved_up_is_told_and_read_again(bench: Bench) -> None:
    bench.server.write("XTRIM", bench.key, "MINID", "=", "3-0")
    done = bench.trim((5, 0))
    assert (done.verdict, done.removed, done.first) == ("moved", 0, (3, 0))
    bench.facts, _ = bench.source.observe(None)
    assert [reading.batch.records for reading in bench.source.batches(1000, 1000)] == [8]
    assert bench.trim((5, 0)).removed == 2
    assert bench.trim((8, 0)).removed == 3


ENTRY = st.lists(st.binary(max_size=300), min_size=2, max_size=6)


@given(pages=st.lists(st.lists(ENTRY, min_size=1, max_size=4), min_size=1, max_size=4), data=st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_digest_is_the_same_on_both_sides(
    server: Server, pages: list[list[list[bytes]]], data: st.DataObject
) -> None:
    """Of whatever bytes, read in however many goes, trimmed at whatever id."""
    server.write("DEL", Queue(server, "mail").keys.stream("completions"))  # before: else the last example is read, too
    bench = Bench(server, 0)
    count = 0
    for page in pages:
        for texts in page:
            count += 1
            server.write("XADD", bench.key, f"{count}-18446744073709551615", *texts[: len(texts) // 2 * 2])
        bench.facts, _ = bench.source.observe(None)
        for _ in bench.source.batches(1000, 1000):
            pass
    stays = data.draw(st.none() | st.integers(1, count))
    there = set(range(1, count + 1))
    for upto in sorted(data.draw(st.lists(st.integers(1, count), max_size=4))):
        done = bench.trim((upto, 0), spared=[(stays, (1 << 64) - 1)] if stays else [])
        gone = {i for i in there if i < upto and i != stays}
        assert (done.verdict, done.removed) == ("trimmed", len(gone))
        there -= gone
    assert bench.left() == [f"{i}-18446744073709551615" for i in sorted(there)]


def test_groups_hold_it_up(bench: Bench) -> None:
    bench.group("audit", read=10, acked=10)
    bench.group("billing", read=4, acked=2)
    done = bench.trim((11, 0))
    assert (done.removed, done.bound) == (2, (3, 0))
    [held] = done.held
    assert (held.name, held.pending, held.undelivered, held.needs) == ("billing", 2, 6, (3, 0))
    assert bench.trim((11, 0), groups="ignore").removed == 8


def test_a_pending_entry_that_is_gone_holds_nothing_up(bench: Bench) -> None:
    bench.group("slow", read=10, acked=0)
    bench.server.write("XTRIM", bench.key, "MINID", "=", "5-0")
    bench.server.write("XACK", bench.key, "slow", *[f"{i}-0" for i in range(5, 11)])
    bench.read()
    assert bench.trim((8, 0)).removed == 3


def test_a_group_that_read_to_the_very_last_id(server: Server) -> None:
    bench = Bench(server, 3)
    top = 18446744073709551615
    server.write("XADD", bench.key, f"{top}-{top}", "f", "last")
    bench.read()
    bench.group("audit", read=4, acked=3)
    done = bench.trim((top, top))
    assert (done.removed, bench.left()) == (3, [f"{top}-{top}"])


def test_what_could_not_be_archived_stays_alone(bench: Bench) -> None:
    done = bench.trim((9, 0), spared=[(3, 0), (7, 0)])
    assert done.removed == 6
    assert bench.left() == ["3-0", "7-0", "9-0", "10-0"]
    assert bench.trim((10, 0), spared=[(3, 0), (7, 0)]).removed == 1


def test_around_what_stays_it_goes_in_slices(server: Server) -> None:
    bench = Bench(server, 4600)
    removed = [bench.trim((4601, 0), spared=[(1, 0)]).removed for _ in range(4)]
    assert (sum(removed), max(removed) <= 2000, bench.left()) == (4599, True, ["1-0"])


def test_at_the_memory_limit_it_still_frees(bench: Bench) -> None:
    bench.server.write("CONFIG", "SET", "maxmemory", 1_000_000)
    try:
        assert bench.trim((9, 0)).removed == 8
        with pytest.raises(ServerError) as refused:
            bench.watermark.cache(None, EVT)
        assert refused.value.code == "OOM"
    finally:
        bench.server.write("CONFIG", "SET", "maxmemory", 0)


def test_the_watermark_only_rises(bench: Bench) -> None:
    def mark() -> bytes:
        return bench.server.read("GET", bench.queue.keys.watermark("completions"))  # type: ignore[no-any-return]  # raw

    assert bench.watermark.cache(None, EVT)
    assert bench.watermark.cache(None, HIGHER)
    assert not bench.watermark.cache(None, EVT)
    assert mark() == HIGHER.encode()
    bench.server.write("SET", bench.queue.keys.watermark("completions"), "rubbish")
    assert bench.watermark.cache(None, EVT)
    bench.lease()
    with pytest.raises(FenceError):
        bench.watermark.cache(None, HIGHER)
    assert mark() == EVT.encode()


def test_keys_of_another_type(bench: Bench) -> None:
    bench.server.write("LPUSH", bench.queue.keys.watermark("completions"), "x")
    with pytest.raises(DamagedError):
        bench.watermark.cache(None, EVT)
    bench.server.write("DEL", bench.key)
    bench.server.write("SET", bench.key, "x")
    with pytest.raises(DamagedError):
        bench.trim((4, 0))

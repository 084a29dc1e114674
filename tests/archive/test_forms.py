"""Universal rules of the stored forms: whatever the bytes, they come back, and all readings of them agree."""

from __future__ import annotations

import tempfile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emq_archive import codec
from emq_archive.chunk import Batch, Chunk
from emq_archive.deadjob import dead_id
from emq_archive.local import SqlStore, open_local
from emq_archive.log.commit import Change, Commit, LetGo, checkpoint_key, checkpoint_lsn, commit_key, encoded, lsn_of
from emq_archive.merge import SortedSource, merge
from emq_archive.model import Policy, RawEntry, Record, StreamRef, Writer, show_id
from emq_archive.read.bloom import xxh64
from emq_archive.segment import SegmentWriter, open_segment, row_groups, write_segment
from emq_ops.protocol import ids
from emq_ops.protocol.errors import BadInputError

TOP = (1 << 64) - 1
NAMES = st.one_of(
    st.sampled_from(
        [b"id", b"job", b"outcome", b"attempts", b"result", b"error", b"group", b"fact:seen_at", b"row:group"]
    ),
    st.binary(max_size=5),
)
VALUES = st.one_of(
    st.binary(max_size=20),
    st.sampled_from([b"EVT0STBBIRAKHo", b"JOB0STBBIRAKHo", b"EVTzzzzzzzzzzz", b"completed", b"7", b"007", b"-1", b""]),
    st.integers(0, 10**20).map(lambda n: str(n).encode()),
    st.just(b"x" * 300),
)
PAIRS = st.lists(st.tuples(NAMES, VALUES), max_size=6)
PARTS = st.one_of(st.integers(0, 3), st.integers(0, TOP), st.just(TOP))
IDS = st.tuples(PARTS, PARTS)


def entries_of(found: dict[tuple[int, int], list[tuple[bytes, bytes]]]) -> list[RawEntry]:
    return [[show_id(i).encode(), [x for pair in found[i] for x in pair]] for i in sorted(found)]


STREAMS = st.dictionaries(IDS, PAIRS, min_size=1, max_size=12).map(entries_of)


@given(st.lists(st.binary(max_size=400), max_size=300))
def test_packed_fields_come_back(flat: list[bytes]) -> None:
    assert codec.unpack(codec.pack(flat)) == flat


@settings(max_examples=60, deadline=None)
@given(STREAMS, st.data())
def test_chunks_come_back_whole_and_in_parts(entries: list[RawEntry], data: st.DataObject) -> None:
    chunk = Chunk.of(entries)
    assert chunk.entries() == entries
    assert chunk.sorted
    assert Chunk.decode(chunk.encode()).entries() == entries
    start = data.draw(st.integers(0, len(entries)))
    part = chunk.slice(start, data.draw(st.integers(0, len(entries))))
    assert part.entries() == entries[start : start + len(part)]
    assert Chunk.decode(part.encode()).entries() == part.entries()
    places = data.draw(st.lists(st.integers(0, len(entries) - 1), max_size=8))
    assert chunk.take(places).entries() == [entries[i] for i in places]
    assert Chunk.concat([part, chunk]).entries() == part.entries() + entries
    assert len(part) == 0 or part.weight <= chunk.weight


@settings(max_examples=60, deadline=None)
@given(STREAMS, st.sampled_from(["stream", "dead"]))
def test_segments_come_back_and_their_columns_are_what_each_record_says(entries: list[RawEntry], kind: Any) -> None:
    ref = StreamRef("q", "s", kind)
    day = int(entries[0][0].split(b"-")[0]) // 86_400_000
    entries = [e for e in entries if int(e[0].split(b"-")[0]) // 86_400_000 == day]
    chunk = Chunk.of(entries)
    segment, body = write_segment(ref, 3, [chunk])
    file = open_segment(body, segment.key)
    assert [e for part in row_groups(file, segment.key) for e in part.entries()] == entries
    rows = file.read().to_pylist()
    for row, record in zip(rows, chunk.records(3, kind), strict=True):
        assert (row["ms"], row["seq"], row["incarnation"]) == (*record.id, 3)
        assert round(row["time"].timestamp() * 1000) == record.time_ms
        for name in ("evt", "job", "outcome", "attempts", "result", "error", "group"):
            assert row[name] == getattr(record, name), name
    writer = SegmentWriter(ref, 3)
    for i in range(len(entries)):
        writer.add(chunk.slice(i, 1))
    assert writer.close() == (segment, body)  # the same records, the same bytes


@settings(max_examples=25, deadline=None)
@given(st.lists(st.dictionaries(st.tuples(st.integers(0, 4), st.integers(0, 2)), PAIRS, max_size=6), max_size=6))
def test_whatever_is_added_in_whatever_order_each_record_is_there_once(
    pages: list[dict[tuple[int, int], list[tuple[bytes, bytes]]]],
) -> None:
    """Against the plainest model: a set of (id, fields)."""
    wanted: set[tuple[tuple[int, int], tuple[tuple[bytes, bytes], ...]]] = set()
    with tempfile.TemporaryDirectory() as folder, open_local(f"sqlite:///{folder}/a.db") as store:
        for page in pages:
            fresh = {(i, tuple(fields)) for i, fields in page.items()} - wanted
            batch = Batch()
            batch.append(entries_of(page))
            added = store.add(REF, batch, None, Policy())
            assert (added.new, added.known) == (len(fresh), len(page) - len(fresh))
            wanted |= fresh
        _check(store, wanted)


REF = StreamRef("q", "s")


def _check(store: SqlStore, wanted: set[Any]) -> None:
    found = list(store.records(REF))
    assert sorted((r.id, r.fields) for r in found) == sorted(wanted)
    places = [(r.id, r.incarnation) for r in found]
    assert places == sorted(set(places))
    for stream_id in {r.id for r in found}:
        numbers = [r.incarnation for r in found if r.id == stream_id]
        assert len(set(numbers)) == len(numbers)


@given(st.lists(st.lists(st.tuples(IDS, st.integers(0, 2)), max_size=8).map(lambda x: sorted(set(x))), max_size=5))
def test_merging_keeps_order_and_drops_doubles(sources: list[list[tuple[tuple[int, int], int]]]) -> None:
    def run(source: list[tuple[tuple[int, int], int]]) -> SortedSource:
        return SortedSource(source[0][0], lambda: (Record(i, (), n) for i, n in source))

    runs = sorted((run(source) for source in sources if source), key=lambda r: r.first)
    merged = [(r.id, r.incarnation) for r in merge(runs)]
    assert merged == sorted({x for source in sources for x in source})


@given(IDS, IDS)
def test_keys_of_ids_are_ordered_as_ids(one: tuple[int, int], two: tuple[int, int]) -> None:
    assert (codec.id_key(*one) < codec.id_key(*two)) == (one < two)
    assert codec.id_of(codec.id_key(*one)) == one


@given(st.text(min_size=1, max_size=200), st.text(min_size=1, max_size=200))
def test_names_in_keys_are_safe_and_different(one: str, two: str) -> None:
    try:
        keys = [encoded(one), encoded(two)]
    except UnicodeEncodeError:  # lone surrogates are no names: the keyspace refuses them before
        return
    for key in keys:
        assert len(key) < 200
        assert key.isascii()
        assert not set(key) & set("/\\\0*?")
        assert not key.startswith(".")
    assert (one == two) == (keys[0] == keys[1])


@given(st.integers(1, 10**18))
def test_numbers_of_commits_and_checkpoints_come_back(lsn: int) -> None:
    assert lsn_of(commit_key(REF, lsn)) == lsn
    assert checkpoint_lsn(checkpoint_key(REF, lsn)) == lsn
    assert checkpoint_key(REF, lsn + 1) < checkpoint_key(REF, lsn)


@given(st.integers(0, (1 << 63) - 1), st.integers(0, (1 << 26) - 1), st.integers(0, (1 << 16) - 1))
def test_a_dead_jobs_id_says_who_it_is(snowflake: int, attempts: int, stalls: int) -> None:
    job = ids.BrandedId("JOB", snowflake)
    ms, seq = dead_id(job.text, attempts, stalls)
    assert ms == job.unix_ms
    assert (seq >> 42, seq >> 16 & 0x3FFFFFF, seq & 0xFFFF) == (snowflake & ids.MAX_LOW, attempts, stalls)


@pytest.mark.parametrize(("attempts", "stalls"), [(1 << 26, 0), (0, 1 << 16), (-1, 0)])
def test_what_does_not_fit_a_dead_jobs_id_is_refused(attempts: int, stalls: int) -> None:
    with pytest.raises(BadInputError):
        dead_id("JOB0STBBIRAKHo", attempts, stalls)


@pytest.mark.parametrize(
    ("data", "hashed"),
    [(b"", 0xEF46DB3751D8E999), (b"a", 0xD24EC4F1A98C6E5B), (b"x" * 40, None), (b"JOB0STBBIRAKHo", None)],
)
def test_xxh64(data: bytes, hashed: int | None) -> None:
    assert 0 <= xxh64(data) < 1 << 64
    assert hashed is None or xxh64(data) == hashed


def test_a_commit_is_always_the_same_bytes() -> None:
    segment, _ = write_segment(REF, 0, [Chunk.of([[b"5-1", [b"job", "jöb".encode()]]])])
    commit = Change(
        kind="ship",
        at=5,
        add=(segment,),
        remove=((9, "k"),),
        opens=1,
        erased=("j", (4, 2)),
        redact='{"drop":[],"hash":[]}',
        after="1-1",
        let_go=LetGo((1, 2), (3, 4), b"0123456789abcdef"),
    ).follow(1, None, REF, Writer("state", 3, "w"))
    again = Commit.of(commit.body(), "key")
    assert again.body() == commit.body()
    assert again == commit
    assert again.add[0].lsn == 1
    assert again.add[0].job_min is None  # not plain ASCII, so nothing is said of it

"""Reading: archive, then live tail, in one order, without a gap and without a double."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from emq_archive.deadjob import dead_entry
from emq_archive.errors import DamagedArchiveError
from emq_archive.live import LiveStream
from emq_archive.local import SqlStore, open_local
from emq_archive.model import FIRST_ID, LAST_ID, Policy, RawEntry, Redact, StreamId, StreamRef, parse_id
from emq_archive.ports import Remote
from emq_archive.read.archive import Archive
from emq_archive.read.filters import job_asked_for
from emq_archive.read.query import Query
from emq_archive.remote import open_remote
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.ids import LOW_BITS, BrandedId
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from tests.archive.making import REF, SNOWFLAKE_START, START_MS, add, entry, job_of, plain, settled, shipper


@pytest.fixture
def queue(server: Server) -> Queue:
    return Queue(server, REF.queue)


def live(queue: Queue, entries: list[RawEntry]) -> LiveStream:
    for one in entries:
        queue.server.write("XADD", queue.keys.stream(REF.stream), one[0], *one[1])
    return LiveStream(queue, REF.stream)


@pytest.mark.alike
def test_from_the_remote_alone(local: SqlStore, new_local: Callable[[], SqlStore], remote: Remote) -> None:
    entries = settled(300)
    add(local, entries)
    shipper(local, remote).ship(now_ms=START_MS, force=True)
    archive = Archive(new_local(), remote, REF)
    assert plain(archive.read()) == entries
    assert plain(archive.read(parse_id(entries[7][0]), parse_id(entries[9][0]))) == entries[7:10]
    assert plain(archive.read(limit=5)) == entries[:5]
    assert plain(archive.read(job=job_of(entries[123]))) == [entries[123]]
    before = archive.looked.groups
    assert plain(archive.read(job="JOB0STBBIRAKHo")) == []
    assert archive.looked.groups == before  # the filter says that it is nowhere


@pytest.mark.alike
def test_local_remote_and_live_are_one_sequence(
    local: SqlStore, new_local: Callable[[], SqlStore], remote: Remote, queue: Queue
) -> None:
    """Some only remote (another host's), some both, some waiting here, some archived and live, some live only."""
    entries = settled(500)
    other = new_local()
    add(other, entries[:200])
    shipper(other, remote).ship(now_ms=START_MS, force=True)
    add(local, entries[150:300])
    shipper(local, remote).ship(now_ms=START_MS, force=True)
    add(local, entries[300:400])
    archive = Archive(local, remote, REF, live=live(queue, entries[250:]))
    assert plain(archive.read()) == entries
    assert plain(archive.read(parse_id(entries[190][0]), parse_id(entries[450][0]))) == entries[190:451]
    assert plain(archive.read(job=job_of(entries[480]))) == [entries[480]]
    assert plain(archive.tail()) == entries[400:]
    # By the local database alone: what it holds, and the stream.
    assert plain(Archive(local, None, REF, live=LiveStream(queue, REF.stream)).read()) == entries[150:]


def test_a_used_again_id_comes_once_for_each_record(local: SqlStore, queue: Queue) -> None:
    add(local, [entry("1-0", "a", "1"), entry("2-0", "a", "2")])
    archive = Archive(local, None, REF, live=live(queue, [entry("1-0", "a", "new"), entry("2-0", "a", "2")]))
    assert [(r.stream_id, r.first(b"a")) for r in archive.read()] == [("1-0", b"1"), ("1-0", b"new"), ("2-0", b"2")]


class Moving(LiveStream):
    """Another host archives and trims between two looks at the stream."""

    def __init__(self, queue: Queue, stream: str, act: Callable[[], None]) -> None:
        super().__init__(queue, stream)
        self.act: Callable[[], None] | None = act

    def window(self, start: StreamId, end: StreamId) -> tuple[list[RawEntry], StreamId]:
        found, upto = super().window(start, end)
        if self.act is not None:
            act, self.act = self.act, None
            act()
            return found[:40], parse_id(found[39][0])
        return found, upto


@pytest.mark.alike
def test_what_leaves_the_stream_while_it_is_read_is_found_in_the_archive(
    local: SqlStore, new_local: Callable[[], SqlStore], remote: Remote, queue: Queue
) -> None:
    entries = settled(100)
    live(queue, entries)
    leader = new_local()

    def archive_and_trim() -> None:
        add(leader, entries)
        shipper(leader, remote).ship(now_ms=START_MS, force=True)
        queue.server.write("XTRIM", queue.keys.stream(REF.stream), "MINID", "=", entries[80][0])

    archive = Archive(local, remote, REF, live=Moving(queue, REF.stream, archive_and_trim))
    assert plain(archive.read()) == entries


def test_an_empty_or_missing_stream_reads_as_the_archive(local: SqlStore, queue: Queue) -> None:
    assert list(Archive(local, None, REF, live=LiveStream(queue, REF.stream)).read()) == []
    entries = settled(10)
    add(local, entries)
    assert plain(Archive(local, None, REF, live=LiveStream(queue, REF.stream)).read()) == entries


@pytest.mark.alike
def test_dead_jobs_are_found_by_their_id(local: SqlStore, new_local: Callable[[], SqlStore], remote: Remote) -> None:
    ref = StreamRef.dead("mail")
    jobs = [job_of(raw) for raw in settled(30)]
    entries = [dead_entry(job, [(b"payload", b"{}")], [], attempts=2, stalls=0) for job in jobs]
    add(local, entries, ref)
    shipper(local, remote, ref).ship(now_ms=START_MS, force=True)
    archive = Archive(new_local(), remote, ref)
    assert [r.job for r in archive.read()] == jobs
    assert [r.job for r in archive.read(job=jobs[13])] == [jobs[13]]


def test_live_records_are_redacted_too(local: SqlStore, queue: Queue) -> None:
    archive = Archive(local, None, REF, live=live(queue, settled(3, card="4111")), redact=Redact(drop=("card",)))
    assert plain(archive.read()) == settled(3)


@pytest.mark.alike
def test_a_damaged_segment_is_named(local: SqlStore, new_local: Callable[[], SqlStore], remote: Remote) -> None:
    add(local, settled(50))
    shipper(local, remote).ship(now_ms=START_MS, force=True)
    (key,) = remote.list("queue=")
    remote.put(key, (remote.get(key) or b"")[:-9])
    with pytest.raises(DamagedArchiveError, match="completions/date="):
        list(Archive(new_local(), remote, REF).read())
    for harm in (lambda: None, lambda: remote.delete([key])):  # cut off, then gone
        harm()
        with Query(Archive(new_local(), remote, REF)) as query, pytest.raises(DamagedArchiveError, match=key):
            list(query.run("SELECT max(result) FROM records")[1])


# --- SQL


@pytest.mark.alike
def test_one_view_over_local_remote_and_live(
    local: SqlStore, new_local: Callable[[], SqlStore], remote: Remote, queue: Queue
) -> None:
    entries = settled(300)
    other = new_local()
    add(other, entries[:100])
    shipper(other, remote).ship(now_ms=START_MS, force=True)
    add(local, entries[:200])
    archive = Archive(local, remote, REF, live=live(queue, entries[50:]))
    with Query(archive) as query:
        columns, rows = query.run("SELECT stored, count(*) AS n FROM records GROUP BY stored ORDER BY stored")
        found = dict(rows)
        assert columns == ["stored", "n"]
        assert sum(found.values()) == 300
        assert found["live"] == 100
        _, rows = query.run("SELECT count(DISTINCT job), min(evt), max(evt), any_value(queue) FROM records")
        assert next(iter(rows)) == (300, entries[0][1][1].decode(), entries[-1][1][1].decode(), "mail")
        _, rows = query.run("SELECT result, fields[1].name FROM records WHERE job = ?", [job_of(entries[42])])
        assert list(rows) == [(b"ok 42", b"id")]
        with pytest.raises(BadInputError, match="the query is refused"):
            query.run("SELECT * FROM nowhere")
        with pytest.raises(BadInputError, match="disabled"):
            list(query.run("SELECT * FROM read_text('/etc/hostname')")[1])


@pytest.mark.alike
def test_a_query_for_one_job_reads_few_row_groups(local: SqlStore, remote: Remote) -> None:
    """Jobs in an order that statistics can't use: the filters do it."""
    jobs = [job_of(raw) for raw in settled(4000)]
    random.Random(1).shuffle(jobs)
    ship = shipper(local, remote)
    for at in range(0, 4000, 400):
        page = [entry(f"{START_MS + i}-0", "job", jobs[i]) for i in range(at, at + 400)]
        add(local, page)
        ship.ship(now_ms=START_MS, force=True)
    with Query(Archive(local, remote, REF)) as query:
        _, rows = query.run("SELECT job FROM records WHERE job = ?", [jobs[1234]])
        assert list(rows) == [(jobs[1234],)]
        assert query.looked.of >= 9
        assert query.looked.groups <= 2  # a filter may be wrong once in a hundred times


@pytest.mark.parametrize(
    ("text", "job"),
    [
        ('(job == "J")', "J"),
        ('((ms > 5) and (job == "J"))', "J"),
        ('(((ms > 5) and (job == "J")) and (seq < 2))', "J"),
        ('((job == "J") or (ms > 5))', None),
        ('(((job == "J") or (ms > 5)) and (seq < 2))', None),
        ('((outcome == "x) and (job == \\"J\\")") and (ms > 5))', None),
        ('invert((job == "J"))', None),
        ("is_valid(job)", None),
        ("", None),
    ],
)
def test_which_job_a_filter_asks_for(text: str, job: str | None) -> None:
    assert job_asked_for(text) == job


def test_the_very_ends_of_the_ids(local: SqlStore) -> None:
    entries = [entry("0-1"), entry("18446744073709551615-18446744073709551615")]
    add(local, entries, policy=Policy())
    assert plain(Archive(local, None, REF).read(FIRST_ID, LAST_ID)) == entries
    with Query(Archive(local, open_remote("file:/nonexistent/never/made"), REF)) as query:
        assert list(query.run("SELECT max(ms) FROM records")[1]) == [(18446744073709551615,)]


@pytest.mark.soak(minutes=3)
@pytest.mark.parametrize("order", ["minted", "shuffled"])
def test_one_job_of_2000000_records_reads_at_most_5_percent_of_the_row_groups(tmp_path: Path, order: str) -> None:
    """Row groups of 65,536 records; also where jobs settle in no order at all, which statistics can't use."""
    count, page = 2_000_000, 20_000
    numbers = list(range(count))
    if order == "shuffled":
        random.Random(7).shuffle(numbers)
    remote = open_remote(f"file:{tmp_path}/bucket")
    with open_local(f"sqlite:///{tmp_path}/a.db") as local:
        ship = shipper(local, remote)
        for at in range(0, count, page):
            rows = []
            for i in range(at, at + page):
                job = BrandedId("JOB", (SNOWFLAKE_START + numbers[i]) << LOW_BITS).text
                rows.append(entry(f"{START_MS + i // 50}-{i % 50}", "job", job, "outcome", "completed"))
            add(local, rows)
            if ship.due(START_MS):
                ship.ship(now_ms=START_MS)
        ship.ship(now_ms=START_MS, force=True)
        sizes = []
        for key in remote.list("queue=mail/"):
            meta = pq.ParquetFile(io.BytesIO(remote.get(key) or b"")).metadata
            sizes += [meta.row_group(g).num_rows for g in range(meta.num_row_groups)]
        assert sum(sizes) == count
        wanted = BrandedId("JOB", (SNOWFLAKE_START + 1_234_567) << LOW_BITS).text
        with Query(Archive(local, remote, REF)) as query:
            _, found = query.run("SELECT job, ms, seq FROM records WHERE job = ?", [wanted])
            (row,) = found
        place = numbers.index(1_234_567)
        assert row == (wanted, START_MS + place // 50, place % 50)
        assert query.looked.groups <= 0.05 * len(sizes), (query.looked, len(sizes))
        archive = Archive(open_local(f"sqlite:///{tmp_path}/b.db"), remote, REF)
        assert [r.job for r in archive.read(job=wanted)] == [wanted]
        assert archive.looked.groups <= 0.05 * len(sizes)
        archive.local.close()

"""Dead jobs into the archive: what the receipt proves, and the digest that the trim compares."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emq_archive.deadjob import dead_digest
from emq_archive.errors import DamagedArchiveError
from emq_archive.local import SqlStore, open_local
from emq_archive.model import Policy, Writer
from emq_archive.ports import Remote
from emq_archive.remote import open_remote
from emq_archive.write.dead import DeadArchive
from emq_archive.write.pace import Allowance
from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import claims, enqueue, jobs, settle
from tests.support.oracle import Bucket

LANE = "GRP0SSBKAh61tG"
NOW = 1_733_000_000_000
STATE = "6b3f1c1e-0000-4000-8000-000000000001"


@pytest.fixture
def queue(server: Server) -> Queue:
    return Queue(server, "mail")


class Kept:
    """The archive of the queue's dead jobs in SQLite and a directory."""

    def __init__(self, queue: Queue, root: Path) -> None:
        self.queue, self.root = queue, root
        self.local: SqlStore = open_local(f"sqlite:///{root}/local.db")
        self.remote: Remote = open_remote(f"file:{root}/bucket")

    def archive(self, **policy: Any) -> DeadArchive:
        """As a fresh process would have it."""
        return DeadArchive(self.queue, self.local, self.remote, Policy(**policy), Writer(STATE, name="test"))

    def records(self) -> list[tuple[tuple[bytes, bytes], ...]]:
        return [seen.pairs for seen in Bucket.folder(self.root / "bucket").records("mail", "dead")]


@pytest.fixture
def kept(queue: Queue, tmp_path: Path) -> Iterator[Kept]:
    made = Kept(queue, tmp_path)
    yield made
    made.remote.close()
    made.local.close()


def make_dead(queue: Queue, *, group: str | None = None, payload: bytes = b"\x00\xff payload") -> str:
    job = ids.mint("JOB")
    enqueue.enqueue(queue, job, payload, group=group)
    claim = claims.claim_lane(queue, 60_000) if group else claims.claim(queue, 60_000)
    assert claim is not None
    jobs.add_log(queue, job, b"first \xff")
    jobs.add_log(queue, job, b"second")
    settle.retry(queue, job, claim.token, settle.Failure(b"boom \x80", delay_ms=0, max_attempts=1))
    return job


def test_row_logs_and_facts_in_order(queue: Queue, kept: Kept) -> None:
    plain, grouped = make_dead(queue), make_dead(queue, group=LANE)
    facts = {plain: [(b"seen_at", b"1733000000000"), (b"cause", b"error")]}
    receipt = kept.archive().archive([plain, grouped], facts, now_ms=NOW)
    assert set(receipt.proven) == {plain, grouped}
    assert (receipt.folded, receipt.shipped, receipt.segments, receipt.lsn) == (2, 2, 1, 1)
    assert (receipt.failed, receipt.gone) == ({}, [])
    row = queue.server.read("HGETALL", queue.keys.row(plain))
    pairs = [(b"row:" + row[i], row[i + 1]) for i in range(0, len(row), 2)]
    logs = [(b"log", b"first \xff"), (b"log", b"second")]
    told = [(b"fact:seen_at", b"1733000000000"), (b"fact:cause", b"error")]
    assert kept.records()[0] == ((b"job", plain.encode()), *pairs, *logs, *told)
    assert receipt.proven[plain].names == tuple(row[::2])
    assert (receipt.proven[plain].attempts, receipt.proven[plain].stalls) == (1, 0)


def test_archived_before(queue: Queue, kept: Kept) -> None:
    job = make_dead(queue)
    kept.archive().archive([job], {}, now_ms=NOW)
    again = kept.archive().archive([job], {job: [(b"seen_at", b"5")]}, now_ms=NOW)
    assert (set(again.proven), again.folded, again.known, again.segments) == ({job}, 0, 1, 0)
    # A log line later it is not what was archived.
    jobs.add_log(queue, job, b"third")
    changed = kept.archive().archive([job], {}, now_ms=NOW)
    assert (set(changed.proven), changed.folded) == ({job}, 1)
    assert changed.proven[job].digest != again.proven[job].digest
    assert len(kept.records()) == 2


def test_nothing_is_proven_on_a_damaged_archive(queue: Queue, kept: Kept) -> None:
    job = make_dead(queue)
    kept.archive().archive([job], {}, now_ms=NOW)
    [segment] = (kept.root / "bucket").rglob("*.parquet")
    segment.chmod(0o644)
    segment.write_bytes(segment.read_bytes()[:-1])
    with pytest.raises(DamagedArchiveError, match="is not what commit 1 says"):
        kept.archive().archive([job], {}, now_ms=NOW)


def test_what_can_not_be_archived_is_named(queue: Queue, kept: Kept) -> None:
    good, odd, listed, large, logless = (make_dead(queue) for _ in range(5))
    queue.server.write("SET", queue.keys.book(logless, "logs"), "no list")
    queue.server.write("HSET", queue.keys.row(odd), "attempts", "many")
    queue.server.write("DEL", queue.keys.row(listed))
    queue.server.write("LPUSH", queue.keys.row(listed), "x")
    queue.server.write("HSET", queue.keys.row(large), "payload", b"x" * 5000)
    alive = ids.mint("JOB")
    rowless = ids.mint("JOB")
    queue.server.write("ZADD", queue.keys.dead, 0, rowless)
    asked = [good, odd, listed, large, logless, alive, rowless, "../../etc", "EVT0STBBIRAKHo"]
    receipt = kept.archive(max_record_bytes=4096).archive(asked, {}, now_ms=NOW)
    assert set(receipt.proven) == {good, rowless}
    assert set(receipt.failed) == {odd, listed, large, logless, "../../etc", "EVT0STBBIRAKHo"}
    assert receipt.gone == [alive]
    assert "attempts is no whole number" in receipt.failed[odd]
    assert len(kept.records()) == 2


def test_local_alone_is_enough_where_the_policy_says_so(queue: Queue, kept: Kept) -> None:
    job = make_dead(queue)
    receipt = kept.archive(trim_after="local").archive([job], {}, now_ms=NOW)
    assert (set(receipt.proven), receipt.shipped) == ({job}, 0)
    assert not (kept.root / "bucket").exists()


def test_trims_of_a_few_jobs_each_share_segments(queue: Queue, kept: Kept) -> None:
    """A simulated hour in which a job dies each 10 s and each is trimmed at once."""
    every, ship_after, burst = 10_000, 60_000, 3
    ships = Allowance(burst, ship_after)
    waiting: list[str] = []
    most = 0
    for n in range(60):
        archive = kept.archive(ship_after_ms=ship_after)
        archive.ships = ships
        receipt = archive.archive([*waiting, make_dead(queue)], {}, now_ms=NOW + n * every)
        assert receipt.failed == {}
        assert set(receipt.proven).isdisjoint(receipt.waiting)
        waiting = receipt.waiting
        most = max(most, len(waiting))
    assert len(Bucket.folder(kept.root / "bucket").segments("mail", "dead")) <= burst + 60 * every // ship_after
    assert 1 <= most <= ship_after // every + 1
    # Whoever asks by hand waits for nothing.
    last = kept.archive(ship_after_ms=ship_after).archive(waiting, {}, now_ms=NOW + 60 * every)
    assert (sorted(last.proven), last.waiting) == (sorted(waiting), [])
    assert len(kept.records()) == 60


def test_many_and_large_ones_go_in_bounded_pages(queue: Queue, kept: Kept) -> None:
    made = [make_dead(queue, payload=b"x" * (1 << 20)) for _ in range(20)]
    receipt = kept.archive().archive(made, {}, now_ms=NOW)
    assert set(receipt.proven) == set(made)
    assert len(kept.records()) == 20


def test_no_job_is_no_work(kept: Kept) -> None:
    receipt = kept.archive().archive([], {}, now_ms=NOW)
    assert (receipt.proven, receipt.segments) == ({}, 0)


def test_both_sides_make_one_digest(queue: Queue) -> None:
    job = make_dead(queue)
    queue.server.write("HSET", queue.keys.row(job), *[text for i in range(1200) for text in (f"\xff{i}", f"v{i}")])
    queue.server.write("RPUSH", queue.keys.book(job, "logs"), *[f"line {i}" for i in range(9000)])
    names = queue.server.read("HKEYS", queue.keys.row(job))
    values = queue.server.read("HMGET", queue.keys.row(job), *names, "absent")
    logs = queue.server.read("LRANGE", queue.keys.book(job, "logs"), 0, -1)
    library = load("dead_read").source.split(b"\nexpect(KEYS[1]")[0]
    script = (
        library
        + b"""
    local lines = redis.call('LRANGE', KEYS[1] .. ':logs', 0, -1)
    return dead_digest(redis.call('HMGET', KEYS[1], unpack(ARGV)), 1, lines)"""
    )
    told = queue.server.write("EVAL", script, 1, queue.keys.row(job), *names, "absent")
    assert told.decode() == dead_digest(values, logs)

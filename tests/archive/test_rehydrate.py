"""Archived dead jobs as jobs again, on a real server."""

from __future__ import annotations

import pytest

from emq_archive.dead import dead_digest
from emq_archive.model import Record, dead_entry
from emq_archive.rehydrate import rehydrate
from emq_ops.protocol import ids
from emq_ops.protocol.errors import BadInputError, StateError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import claims, enqueue, jobs, reads, settle
from tests.support.keyspace import dump

LANE = "GRP0SSBKAh61tG"


@pytest.fixture
def queue(server: Server) -> Queue:
    return Queue(server, "mail")


def make_dead(queue: Queue, *, group: str | None = None, payload: bytes = b"\x00\xff payload") -> str:
    job = ids.mint("JOB")
    enqueue.enqueue(queue, job, payload, group=group)
    claim = claims.claim_lane(queue, 60_000) if group else claims.claim(queue, 60_000)
    assert claim is not None
    jobs.add_log(queue, job, b"first \xff")
    jobs.add_log(queue, job, b"second")
    settle.retry(queue, job, claim.token, delay_ms=0, max_attempts=1, error=b"boom \x80")
    return job


def archived(queue: Queue, job: str) -> Record:
    """The record that an archive of the dead set holds."""
    [[dead, row, logs]] = queue.run("dead_read", [queue.keys.dead], queue.keys.base, 1 << 20, job, readonly=True)
    assert dead == 1
    pairs = list(zip(row[::2], row[1::2], strict=True))
    return Record.from_entry(dead_entry(job, pairs, logs, attempts=1, stalls=0), kind="dead")


def delete(queue: Queue, job: str) -> None:
    queue.server.write("DEL", queue.keys.row(job), queue.keys.book(job, "logs"))
    queue.server.write("ZREM", queue.keys.dead, job)


def test_dead_as_it_was(queue: Queue) -> None:
    job = make_dead(queue, group=LANE)
    before = dump(queue.server)
    record = archived(queue, job)
    delete(queue, job)
    assert rehydrate(queue, record, "dead")
    assert dump(queue.server) == before
    assert not rehydrate(queue, record, "dead")


@pytest.mark.parametrize("group", [None, LANE])
def test_to_run_again(queue: Queue, group: str | None) -> None:
    job = make_dead(queue, group=group)
    record = archived(queue, job)
    delete(queue, job)
    assert rehydrate(queue, record)
    assert reads.job_state(queue, job) is reads.JobState.PENDING
    row = jobs.read_row(queue, job)
    assert row is not None
    assert {b"last_error", b"stalled"}.isdisjoint(row)
    claim = claims.claim_lane(queue, 60_000) if group else claims.claim(queue, 60_000)
    assert claim is not None
    assert (claim.job, claim.payload, claim.token) == (job, b"\x00\xff payload", 2)
    assert queue.server.read("LRANGE", queue.keys.book(job, "logs"), 0, -1) == [b"first \xff", b"second"]


def test_what_can_not_come_back(queue: Queue) -> None:
    job = make_dead(queue)
    record = archived(queue, job)
    without = Record(record.id, tuple(p for p in record.fields if p[0] != b"row:payload"), kind="dead")
    queue.server.write("DEL", queue.keys.row(job))
    with pytest.raises(StateError, match="dead holds this id without a row"):
        rehydrate(queue, record)
    with pytest.raises(BadInputError, match="payload"):
        rehydrate(queue, without)
    with pytest.raises(BadInputError, match="holds no job"):
        rehydrate(queue, Record((1, 0), ((b"job", job.encode()),)))


def test_wide_rows_and_long_logs(queue: Queue) -> None:
    job = make_dead(queue)
    wide = [text for i in range(4000) for text in (f"f{i}", str(i))]
    queue.server.write("HSET", queue.keys.row(job), *wide)
    for start in range(0, 12_000, 4000):
        queue.server.write("RPUSH", queue.keys.book(job, "logs"), *[f"line {i}" for i in range(start, start + 4000)])
    before = dump(queue.server)
    record = archived(queue, job)
    delete(queue, job)
    assert rehydrate(queue, record, "dead")
    assert dump(queue.server) == before


def test_both_sides_make_one_digest(queue: Queue) -> None:
    job = make_dead(queue)
    queue.server.write("HSET", queue.keys.row(job), *[text for i in range(1200) for text in (f"\xff{i}", f"v{i}")])
    script = b"--#"
    names = queue.server.read("HKEYS", queue.keys.row(job))
    values = queue.server.read("HMGET", queue.keys.row(job), *names, "absent")
    logs = queue.server.read("LRANGE", queue.keys.book(job, "logs"), 0, -1)
    from emq_ops.protocol.scripts import load

    library = load("dead_read").source.split(b"\nexpect(KEYS[1]")[0]
    script = library + b"\nreturn dead_digest(KEYS[1], ARGV)"
    told = queue.server.write("EVAL", script, 1, queue.keys.row(job), *names, "absent")
    assert told.decode() == dead_digest(values, logs)

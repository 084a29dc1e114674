"""An erased job is in no object, comes back from nowhere, and others commit meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from emq_archive.local import SqlStore, open_local
from emq_archive.local.catalog import segments
from emq_archive.log.commit import commit_key
from emq_archive.model import LAST_ID
from emq_archive.ports import Remote
from emq_archive.read.archive import Archive
from emq_archive.read.query import Query
from emq_archive.remote import open_remote
from emq_archive.upkeep.compact import compact
from emq_archive.upkeep.erase import erase_job
from emq_archive.upkeep.restore import restore
from emq_archive.upkeep.verify import verify
from tests.archive.making import (
    REF,
    START_MS,
    Beside,
    Cutting,
    Killed,
    add,
    archived,
    as_seen,
    entry,
    job_of,
    plain,
    seen,
    settled,
    shipper,
)

# --- erase


def test_an_erased_job_is_in_no_object_and_does_not_come_back(
    local: SqlStore, new_local: Callable[[], SqlStore], remote: Remote
) -> None:
    entries = archived(local, remote)
    other = new_local()
    restore(other, remote, REF, now_ms=START_MS)
    victim = job_of(entries[30])
    add(local, settled(3, first=100))
    compact(shipper(local, remote), now_ms=START_MS)  # the old objects, in their grace, hold it too
    add(other, settled(3, first=100))
    ship = shipper(local, remote)
    dry = erase_job(ship, victim, now_ms=START_MS, dry_run=True)
    assert (dry.records, dry.segments) == (1, 1)
    done = erase_job(ship, victim, now_ms=START_MS)
    assert (done.records, done.segments) == (1, 1)
    left = entries[:30] + entries[31:]
    assert seen(remote) == as_seen(left)
    for key in remote.list("queue=mail/"):
        assert b"ok 30" not in (remote.get(key) or b"")
    assert plain(local.records(REF)) == left + settled(3, first=100)
    # It may still be in the stream, and is not archived again; here or on a host that reads of it in the log.
    assert add(local, entries).erased == 1
    shipper(other, remote).log.sync()
    assert plain(other.records(REF)) == left + settled(3, first=100)
    assert add(other, entries).erased == 1
    assert verify(local, remote, REF).good
    assert plain(Archive(new_local(), remote, REF).read()) == left
    assert erase_job(ship, victim, now_ms=START_MS).records == 0


def test_what_is_erased_stands_in_no_byte_of_the_local_database(tmp_path: Path) -> None:
    with open_local(f"sqlite:///{tmp_path}/l.db") as local:
        remote = open_remote(f"file:{tmp_path}/b")
        entries = [entry(f"{START_MS + n}-0", "job", f"JOB{n}", "payload", os.urandom(40_000)) for n in range(4)]
        add(local, entries)
        shipper(local, remote).ship(now_ms=START_MS, force=True)
        secret, kept = (one[1][3][20_000:20_064] for one in entries[1:3])
        assert secret in held(tmp_path)
        assert erase_job(shipper(local, remote), "JOB1", now_ms=START_MS).records == 1
        assert secret not in held(tmp_path)
        assert kept in held(tmp_path)


def held(folder: Path) -> bytes:
    """Every byte of the local database's files."""
    return b"".join(file.read_bytes() for file in folder.glob("l.db*"))


def test_on_postgresql_jobs_are_compared_by_bytes(new_local: Callable[[], SqlStore]) -> None:
    local = new_local()
    told = str(local.by_bytes(segments.c.job_min).compile(local.engine))
    assert ('COLLATE "C"' in told) == (local.engine.dialect.name == "postgresql")


def test_only_records_up_to_the_bound_are_erased(local: SqlStore, remote: Remote) -> None:
    entries = [entry(f"{i}-0", "job", "JOB0STBBIRAKHo", "n", str(i)) for i in range(1, 11)]
    add(local, entries)
    ship = shipper(local, remote)
    ship.ship(now_ms=START_MS, force=True)
    assert erase_job(ship, "JOB0STBBIRAKHo", (4, 0), now_ms=START_MS).records == 4
    assert seen(remote) == as_seen(entries[4:])
    assert erase_job(ship, "JOB0STBBIRAKHo", LAST_ID, now_ms=START_MS).records == 6
    assert seen(remote) == []
    assert verify(local, remote, REF).good


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.alike
def test_an_erasure_killed_half_way_is_done_by_the_next(
    local: SqlStore, new_local: Callable[[], SqlStore], remote: Remote, when: str
) -> None:
    entries = archived(local, remote)
    victim = job_of(entries[30])
    # The second commit of it is the rewritten segment's.
    cutting = Cutting(remote, "create", commit_key(REF, 6), when)
    with pytest.raises(Killed):
        erase_job(shipper(local, cutting), victim, now_ms=START_MS)
    # Nobody is shown it meanwhile, whatever the segments hold: not here, nor on another host, restored or new.
    other = new_local()
    restore(other, remote, REF, now_ms=START_MS)
    for host in (local, other, new_local()):
        archive = Archive(host, remote, REF)
        assert plain(archive.read()) == entries[:30] + entries[31:]
        with Query(archive) as query:
            asked = f"SELECT count(*), count(*) FILTER (job = '{victim}') FROM records"
            assert list(query.run(asked)[1]) == [(99, 0)]
    assert plain(other.records(REF)) == entries[:30] + entries[31:]
    erase_job(shipper(local, remote), victim, now_ms=START_MS)
    assert restore(other, remote, REF, now_ms=START_MS).segments == 0
    assert seen(remote) == as_seen(entries[:30] + entries[31:])
    assert verify(local, remote, REF).good


@pytest.mark.alike
def test_an_erased_job_is_found_where_another_merged_it_meanwhile(
    local: SqlStore, new_local: Callable[[], SqlStore], remote: Remote
) -> None:
    entries = archived(local, remote)
    other = new_local()
    # The second commit of it is the rewritten segment's.
    beside = Beside(remote, "create", commit_key(REF, 6), lambda: compact(shipper(other, remote), now_ms=START_MS))
    done = erase_job(shipper(local, beside), job_of(entries[30]), now_ms=START_MS)
    assert (done.records, done.segments) == (1, 1)
    assert seen(remote) == as_seen(entries[:30] + entries[31:])
    for key in remote.list("queue=mail/"):
        assert b"ok 30" not in (remote.get(key) or b"")

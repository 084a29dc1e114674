"""compact, expire, erase: on every pair of local database and object store."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emq_archive.chunk import Chunk
from emq_archive.local import SqlStore, open_local
from emq_archive.local.catalog import Catalog, segments
from emq_archive.log.commit import Change, Segment, commit_key
from emq_archive.model import LAST_ID, parse_id
from emq_archive.ports import Remote
from emq_archive.read.archive import Archive
from emq_archive.read.query import Query
from emq_archive.remote import open_remote
from emq_archive.segment import write_segment
from emq_archive.upkeep.compact import compact, expire
from emq_archive.upkeep.erase import erase_job
from emq_archive.upkeep.restore import restore
from emq_archive.upkeep.verify import verify
from emq_archive.write.ship import store_segment
from emq_ops.protocol.errors import BadInputError
from tests.archive.making import (
    DAY_MS,
    REF,
    START_MS,
    Cutting,
    Killed,
    add,
    archived,
    entry,
    job_of,
    plain,
    settled,
    shipper,
)
from tests.archive.test_ship import TOP, as_seen, seen

# --- compact and expire


@pytest.mark.alike
def test_small_segments_are_merged_and_old_objects_wait_out_their_grace(
    local: SqlStore, new_local: Callable[[], SqlStore], remote: Remote
) -> None:
    entries = archived(local, remote, pages=8, step_ms=DAY_MS // 400)
    before = remote.list("queue=mail/")
    other = new_local()
    shipper(other, remote).log.sync()
    ship = shipper(local, remote)
    dry = compact(ship, now_ms=START_MS, dry_run=True)
    many = len(before)
    assert (dry.merged, remote.list("queue=mail/")) == (many, before)
    done = compact(ship, now_ms=START_MS)
    assert (done.merged, done.segments, done.deleted, done.waiting) == (many, 2, 0, many)
    assert seen(remote) == as_seen(entries)
    assert len(remote.list("queue=mail/")) == many + 2
    # A host that knows the old segments still reads them; after the grace it learns of the new ones.
    assert plain(Archive(other, remote, REF).read()) == entries
    done = compact(ship, now_ms=START_MS + DAY_MS)
    assert (done.merged, done.deleted, done.waiting) == (0, many, 0)
    assert len(remote.list("queue=mail/")) == 2
    assert plain(Archive(other, remote, REF).read()) == entries
    assert verify(local, remote, REF).good
    assert shipper(local, remote).prove(TOP).bound == TOP
    assert Catalog(local, REF).held(next(Catalog(local, REF).segments()))
    listed = [line for key in remote.list("manifest/") for line in (remote.get(key) or b"").decode().split()]
    assert sorted(listed) == sorted(remote.location(key) for key in remote.list("queue=mail/"))


@pytest.mark.parametrize(("verb", "prefix", "when"), [("create", "log/", "before"), ("create", "log/", "after")])
@pytest.mark.alike
def test_a_compaction_killed_half_way_loses_nothing(
    local: SqlStore, remote: Remote, verb: str, prefix: str, when: str
) -> None:
    entries = archived(local, remote)
    with pytest.raises(Killed):
        compact(shipper(local, Cutting(remote, verb, prefix, when)), now_ms=START_MS)
    assert seen(remote) == as_seen(entries)
    compact(shipper(local, remote), now_ms=START_MS)
    compact(shipper(local, remote), now_ms=START_MS + 2 * DAY_MS)
    assert seen(remote) == as_seen(entries)
    assert len(remote.list("queue=mail/")) == 1
    assert verify(local, remote, REF).good


def test_late_and_overlapping_segments_are_merged_in_order(local: SqlStore, remote: Remote) -> None:
    entries = settled(60)
    ship = shipper(local, remote)
    for part in (entries[40:], entries[:20], entries[20:40]):
        add(local, part)
        ship.ship(now_ms=START_MS, force=True)
    assert compact(ship, now_ms=START_MS).segments == 1
    assert verify(local, remote, REF).good
    assert seen(remote) == as_seen(entries)


@pytest.mark.alike
def test_incarnations_are_not_merged_into_one(local: SqlStore, remote: Remote) -> None:
    ship = shipper(local, remote)
    for value in ("1", "2", "1", "2"):
        add(local, [entry(f"{i}-0", "a", value, "b", str(i // 3)) for i in range(1, 6)])
        ship.ship(now_ms=START_MS, force=True)
    before = seen(remote)
    compact(ship, now_ms=START_MS)
    assert seen(remote) == before
    assert verify(local, remote, REF).good


@pytest.mark.alike
def test_nothing_expires_by_itself(local: SqlStore, remote: Remote) -> None:
    entries = archived(local, remote, pages=6, step_ms=DAY_MS // 25)
    ship = shipper(local, remote)
    now = START_MS + 6 * DAY_MS
    with pytest.raises(BadInputError, match="no policy"):
        expire(ship, now_ms=now)
    done = expire(ship, now_ms=now, older_than_ms=3 * DAY_MS, grace_ms=0)
    assert done.expired > 0
    left = [e for e in entries if parse_id(e[0])[0] >= START_MS + 4 * DAY_MS]
    assert seen(remote) == as_seen(entries)[done.records :]
    assert as_seen(left)[-1] in seen(remote)
    assert plain(local.records(REF)) == entries[done.records :]
    assert verify(local, remote, REF).good
    assert done.deleted == done.expired
    again = shipper(local, remote, expire_after_ms=3 * DAY_MS)
    assert expire(again, now_ms=now).expired == 0


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


class Beside:
    """A remote beside which others work: `act` runs once, before the first call of `verb` on a key that begins so."""

    def __init__(self, remote: Remote, verb: str, prefix: str, act: Callable[[], object]) -> None:
        self.remote, self.verb, self.prefix = remote, verb, prefix
        self.act: Callable[[], object] | None = act

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.remote, name)

        def call(key: str, *args: Any, **more: Any) -> Any:
            if name == self.verb and key.startswith(self.prefix) and self.act is not None:
                act, self.act = self.act, None
                act()
            return real(key, *args, **more)

        return call if name == self.verb else real


@pytest.mark.parametrize("verb", ["erase", "compact", "expire"])
@pytest.mark.alike
def test_what_others_commit_meanwhile_is_not_deleted(
    local: SqlStore, new_local: Callable[[], SqlStore], remote: Remote, verb: str
) -> None:
    """Between the last look at the log and the list of objects, another host ships."""
    entries = archived(local, remote)
    other, more = new_local(), settled(5, first=100)
    add(other, more)
    beside = Beside(remote, "list", "queue=", lambda: shipper(other, remote).ship(now_ms=START_MS, force=True))
    ship = shipper(local, beside)
    if verb == "erase":
        entries.remove(entries[30])
        erase_job(ship, job_of(settled(31)[30]), now_ms=START_MS)
    elif verb == "compact":
        compact(ship, now_ms=START_MS, grace_ms=0)
    else:
        expire(ship, now_ms=START_MS, older_than_ms=DAY_MS, grace_ms=0)
    assert verify(local, remote, REF).faults == []
    assert seen(remote) == as_seen(entries + more)


@pytest.mark.parametrize("verb", ["erase", "compact"])
@pytest.mark.alike
def test_what_others_are_about_to_commit_is_not_deleted(
    local: SqlStore, new_local: Callable[[], SqlStore], remote: Remote, verb: str
) -> None:
    """Another host wrote a segment's object and read it back, and commits it when everything was looked through."""
    entries = archived(local, remote)
    other, more = shipper(new_local(), remote), settled(5, first=100)
    written: list[Segment] = []

    def write() -> None:
        written.append(store_segment(remote, *write_segment(REF, 0, [Chunk.of(more)])))

    ship = shipper(local, Beside(remote, "list", "queue=", write))
    if verb == "erase":
        erase_job(ship, "JOB0STBBIRAKHo", now_ms=START_MS)
    else:
        for now in (START_MS, START_MS + 60_000):
            compact(ship, now_ms=now, grace_ms=0)
    other.log.sync()
    other.log.commit(Change(kind="ship", at=START_MS, add=tuple(written)))
    assert verify(local, remote, REF).faults == []
    assert seen(remote) == as_seen(entries + more)


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

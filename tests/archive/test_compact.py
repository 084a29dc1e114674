"""compact, expire, erase: on every pair of local database and object store."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from emq_archive.chunk import Chunk
from emq_archive.local import SqlStore
from emq_archive.local.catalog import Catalog
from emq_archive.log.commit import Change, Segment
from emq_archive.model import parse_id
from emq_archive.ports import Remote
from emq_archive.read.archive import Archive
from emq_archive.segment import write_segment
from emq_archive.upkeep.compact import compact, expire
from emq_archive.upkeep.erase import erase_job
from emq_archive.upkeep.verify import verify
from emq_archive.write.ship import store_segment
from emq_ops.protocol.errors import BadInputError
from tests.archive.making import (
    DAY_MS,
    REF,
    START_MS,
    TOP,
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

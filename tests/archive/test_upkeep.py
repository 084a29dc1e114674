"""verify, restore, compact, expire, erase, adopt: on every pair of local database and object store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from emq_archive.adopt import adopt, after_watermark
from emq_archive.commit import checkpoint_key, commit_key
from emq_archive.compact import compact, expire
from emq_archive.erase import erase
from emq_archive.errors import ArchiveError, DamagedArchiveError, ForeignStateError
from emq_archive.local import SqlStore, open_local
from emq_archive.local.catalog import Catalog
from emq_archive.log import Log
from emq_archive.model import LAST_ID, RawEntry, Redact, StreamId, parse_id
from emq_archive.ports import Fence, Remote
from emq_archive.read import Archive
from emq_archive.remote import open_remote
from emq_archive.remote.directory import DirectoryRemote
from emq_archive.restore import restore
from emq_archive.verify import verify
from emq_ops.protocol.errors import BadInputError, EmqError
from tests.archive.making import (
    DAY_MS,
    REF,
    START_MS,
    STATE,
    Cutting,
    Killed,
    add,
    entry,
    job_of,
    plain,
    settled,
    shipper,
)
from tests.archive.test_ship import TOP, as_seen, seen


def archived(local: SqlStore, remote: Remote, *, pages: int = 4, each: int = 25, step_ms: int = 1) -> list[RawEntry]:
    """A small archive of several segments."""
    entries = settled(pages * each, step_ms=step_ms)
    ship = shipper(local, remote)
    for at in range(0, pages * each, each):
        add(local, entries[at : at + each])
        ship.ship(now_ms=START_MS, force=True)
    return entries


# --- verify


def test_a_whole_archive_has_no_fault(local: SqlStore, remote: Remote) -> None:
    archived(local, remote)
    found = verify(local, remote, REF)
    assert (found.faults, found.commits, found.segments, found.records, found.orphans) == ([], 4, 4, 100, 0)
    remote.create("queue=mail/stream=completions/date=2024-12-01/1-0-2-0-00.parquet", b"left by a killed process")
    found = verify(local, remote, REF)
    assert (found.faults, found.orphans) == ([], 1)


def test_every_fault_is_named_and_stops_the_trim_until_it_is_mended(local: SqlStore, remote: Remote) -> None:
    archived(local, remote, pages=6)
    keys = sorted(remote.list("queue=mail/"), key=lambda k: parse_id("-".join(k.rsplit("/", 1)[1].split("-")[:2])))
    bodies = {key: remote.get(key) or b"" for key in [*keys, commit_key(REF, 2)]}
    remote.put(keys[0], bodies[keys[0]][:-20])
    remote.put(keys[2], bodies[keys[2]][:200] + bytes([bodies[keys[2]][200] ^ 4]) + bodies[keys[2]][201:])
    remote.delete([keys[4], commit_key(REF, 2)])
    found = verify(local, remote, REF)
    assert sorted(found.faults) == sorted(
        [
            f"{commit_key(REF, 2)}: missing from the log",
            f"{keys[0]}: has {len(bodies[keys[0]]) - 20} bytes, commit 1 says {len(bodies[keys[0]])}",
            f"{keys[2]}: its bytes changed (SHA-256 is not what commit 3 says)",
            f"{keys[4]}: missing, and commit 5 names it",
        ]
    )
    with pytest.raises(DamagedArchiveError, match="nothing is trimmed"):
        shipper(local, remote).prove(TOP)
    for key, body in bodies.items():
        remote.put(key, body)
    assert verify(local, remote, REF).good
    assert shipper(local, remote).prove(TOP).bound == TOP


def test_a_chain_that_was_rewritten_is_noticed(local: SqlStore, remote: Remote) -> None:
    archived(local, remote)
    body = remote.get(commit_key(REF, 2)) or b""
    remote.put(commit_key(REF, 2), body.replace(b'"writer":"test"', b'"writer":"evil"'))
    assert [fault.split(":")[0] for fault in verify(local, remote, REF).faults] == [commit_key(REF, 3)]


def test_commits_missing_at_the_end_are_noticed_by_whoever_saw_them(local: SqlStore, remote: Remote) -> None:
    archived(local, remote)
    remote.delete([commit_key(REF, 4)])
    assert verify(local, remote, REF).faults == [f"{commit_key(REF, 4)}: missing from the log, and this host saw it"]
    with pytest.raises(DamagedArchiveError, match=r"0004\.json is missing"):
        shipper(local, remote).log.sync()


def test_a_commit_that_is_no_json_is_named(local: SqlStore, remote: Remote) -> None:
    archived(local, remote)
    remote.put(commit_key(REF, 4), b"{half")
    faults = verify(local, remote, REF).faults
    assert len([f for f in faults if commit_key(REF, 4) in f]) >= 1


# --- restore


def test_an_empty_database_is_restored_from_the_remote_alone(
    local: SqlStore, new_local: Callable[[], SqlStore], remote: Remote
) -> None:
    entries = archived(local, remote, step_ms=DAY_MS // 40)
    anew = new_local()
    assert restore(anew, remote, REF, now_ms=START_MS, dry_run=True).records == 100
    assert anew.stats(REF).rows == 0
    done = restore(anew, remote, REF, now_ms=START_MS)
    assert (done.records, done.here, done.state) == (100, 0, STATE)
    assert plain(anew.records(REF)) == entries
    assert plain(Archive(anew, None, REF).read()) == entries
    again = restore(anew, remote, REF, now_ms=START_MS)
    assert (again.records, again.here) == (0, 100)
    # What comes from the stream again is known, and what is new goes on from there.
    assert add(anew, entries).known == 100
    add(anew, settled(5, first=100, step_ms=DAY_MS // 40))
    assert shipper(anew, remote).ship(now_ms=START_MS, force=True).records == 5


def test_a_restore_that_was_cut_goes_on(local: SqlStore, new_local: Callable[[], SqlStore], remote: Remote) -> None:
    entries = archived(local, remote)
    anew = new_local()
    third = sorted(remote.list("queue=mail/"))[2]
    with pytest.raises(Killed):
        restore(anew, Cutting(remote, "get", third, "before"), REF, now_ms=START_MS)
    assert 0 < anew.stats(REF).rows < 100
    restore(anew, remote, REF, now_ms=START_MS)
    assert plain(anew.records(REF)) == entries


def test_restoring_over_rows_that_wait_doubles_nothing(
    local: SqlStore, new_local: Callable[[], SqlStore], remote: Remote
) -> None:
    entries = archived(local, remote)
    other = new_local()
    more = settled(10, first=100)
    add(other, entries[40:] + more)
    restore(other, remote, REF, now_ms=START_MS)
    assert plain(other.records(REF)) == entries + more
    assert other.outbox(REF).records == 10


def test_restoring_nothing_says_so(local: SqlStore, remote: Remote) -> None:
    with pytest.raises(ArchiveError, match="holds no archive"):
        restore(local, remote, REF, now_ms=START_MS)


# --- compact and expire


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


def test_incarnations_are_not_merged_into_one(local: SqlStore, remote: Remote) -> None:
    ship = shipper(local, remote)
    for value in ("1", "2", "1", "2"):
        add(local, [entry(f"{i}-0", "a", value, "b", str(i // 3)) for i in range(1, 6)])
        ship.ship(now_ms=START_MS, force=True)
    before = seen(remote)
    compact(ship, now_ms=START_MS)
    assert seen(remote) == before
    assert verify(local, remote, REF).good


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
    dry = erase(ship, victim, now_ms=START_MS, dry_run=True)
    assert (dry.records, dry.segments) == (1, 1)
    done = erase(ship, victim, now_ms=START_MS)
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
    assert erase(ship, victim, now_ms=START_MS).records == 0


def test_only_records_up_to_the_bound_are_erased(local: SqlStore, remote: Remote) -> None:
    entries = [entry(f"{i}-0", "job", "JOB0STBBIRAKHo", "n", str(i)) for i in range(1, 11)]
    add(local, entries)
    ship = shipper(local, remote)
    ship.ship(now_ms=START_MS, force=True)
    assert erase(ship, "JOB0STBBIRAKHo", (4, 0), now_ms=START_MS).records == 4
    assert seen(remote) == as_seen(entries[4:])
    assert erase(ship, "JOB0STBBIRAKHo", LAST_ID, now_ms=START_MS).records == 6
    assert seen(remote) == []
    assert verify(local, remote, REF).good


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_erasure_killed_half_way_is_done_by_the_next(local: SqlStore, remote: Remote, when: str) -> None:
    entries = archived(local, remote)
    victim = job_of(entries[30])
    # The second commit of it is the rewritten segment's.
    cutting = Cutting(remote, "create", commit_key(REF, 6), when)
    with pytest.raises(Killed):
        erase(shipper(local, cutting), victim, now_ms=START_MS)
    assert victim not in [r.job for r in Archive(local, remote, REF).read()]
    erase(shipper(local, remote), victim, now_ms=START_MS)
    assert seen(remote) == as_seen(entries[:30] + entries[31:])
    assert verify(local, remote, REF).good


# --- adopt


class Standing:
    """What stands in a stream."""

    def __init__(self, entries: Sequence[RawEntry]) -> None:
        self.entries = entries

    def pages(self, start: StreamId, end: StreamId) -> Iterator[Sequence[RawEntry]]:
        found = [e for e in self.entries if start <= parse_id(e[0]) <= end]
        for at in range(0, len(found), 7):
            yield found[at : at + 7]


def test_another_archivers_work_is_taken_over(
    local: SqlStore, new_local: Callable[[], SqlStore], remote: Remote
) -> None:
    entries = settled(50)
    watermark = entries[29][1][1]
    after = after_watermark(watermark)
    assert after == parse_id(entries[29][0])
    other = new_local()
    add(other, entries[:20])  # another host had read some of them
    ship, beside = shipper(local, remote), shipper(other, remote, redact=Redact(drop=("result",)))
    assert adopt(ship, Standing(entries), after, now_ms=START_MS, dry_run=True).records == 30
    done = adopt(ship, Standing(entries), after, now_ms=START_MS)
    assert (done.lsn, done.records) == (1, 30)
    added = add(local, entries)
    assert (added.new, added.known) == (20, 30)
    ship.ship(now_ms=START_MS, force=True)
    assert seen(remote) == as_seen(entries[30:])
    assert ship.prove(TOP).bound == TOP
    # It holds on every host, whatever that had read.
    beside.ship(now_ms=START_MS, force=True)
    assert add(other, entries, policy=beside.policy).known == 30
    beside.ship(now_ms=START_MS, force=True)
    assert seen(remote) == as_seen(entries[30:])
    # In another life of the stream the same ids are other records, and are archived.
    assert add(local, [entry(entries[0][0].decode(), "a", "b")], life=1).new == 1


@pytest.mark.parametrize("watermark", [None, b"", b"JOB0STBBIRAKHo", b"EVT"])
def test_no_watermark_to_begin_after(watermark: bytes | None) -> None:
    with pytest.raises(EmqError, match=r"watermark|malformed|EVT"):
        after_watermark(watermark)


# --- the head of a long log


class Counting:
    """A remote that counts requests."""

    def __init__(self, remote: Remote) -> None:
        self.remote, self.requests = remote, 0

    def __getattr__(self, name: str) -> object:
        real = getattr(self.remote, name)

        def call(*args: object, **more: object) -> object:
            self.requests += 1
            return real(*args, **more)

        return call if callable(real) else real


@pytest.mark.parametrize("commits", [3_000, pytest.param(100_000, marks=pytest.mark.soak)])
def test_the_head_of_a_long_log_takes_at_most_5_requests(tmp_path: Path, commits: int) -> None:
    """The numbers alone decide how long the search takes, so most of the log is names."""
    remote = open_remote(f"file:{tmp_path}/bucket")
    assert isinstance(remote, DirectoryRemote)
    with open_local(f"sqlite:///{tmp_path}/a.db") as local, open_local(f"sqlite:///{tmp_path}/b.db") as other:
        ship = shipper(local, remote)
        ship.log.checkpoint_every = 20
        for _ in range(50):
            ship.log.commit("ship", at=START_MS)
            ship.log.checkpoint_if_due()
        counting = Counting(remote)
        fresh = Log(Catalog(other, REF), counting, Fence(STATE))  # type: ignore[arg-type]  # all that a Remote has
        head = fresh.find_head()
        assert (head.lsn, head.hash) == (50, Catalog(local, REF).known().head)
        assert counting.requests <= 5
        folder = remote.root / commit_key(REF, 1).rpartition("/")[0]
        for lsn in range(51, commits):
            (folder / f"{lsn:020d}.json").touch()
        remote.create(commit_key(REF, commits), remote.get(commit_key(REF, 50)) or b"")
        remote.create(checkpoint_key(REF, commits - 500), b"")
        counting.requests = 0
        assert fresh.find_head().lsn == commits
        assert counting.requests <= 5


def test_a_host_that_was_away_catches_up_by_a_checkpoint(new_local: Callable[[], SqlStore], tmp_path: Path) -> None:
    remote = open_remote(f"file:{tmp_path}/bucket")
    one, two, three = new_local(), new_local(), new_local()
    entries = archived(one, remote)
    add(two, entries[:60])
    shipper(two, remote).ship(now_ms=START_MS, force=True)
    ship = shipper(one, remote)
    ship.log.checkpoint_every = 20
    compact(ship, now_ms=START_MS)
    for _ in range(70):
        ship.log.commit("ship", at=START_MS)
        ship.log.checkpoint_if_due()
    away = shipper(two, remote)
    away.log.page = 30
    assert away.log.sync() == shipper(one, remote).log.sync()
    assert plain(Archive(two, remote, REF).read()) == entries
    assert shipper(three, remote).log.sync().lsn == Catalog(one, REF).known().lsn
    assert plain(Archive(three, remote, REF).read()) == entries
    assert away.ship(now_ms=START_MS, force=True).segments == 0
    assert verify(one, remote, REF).good
    with pytest.raises(ForeignStateError):
        shipper(three, remote, state="another").log.sync()

"""verify and restore: on every pair of local database and object store."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from emq_archive.errors import ArchiveError, DamagedArchiveError
from emq_archive.local import SqlStore
from emq_archive.log.commit import commit_key
from emq_archive.model import parse_id
from emq_archive.ports import Remote
from emq_archive.read.archive import Archive
from emq_archive.upkeep.restore import restore
from emq_archive.upkeep.verify import verify
from tests.archive.making import (
    DAY_MS,
    REF,
    START_MS,
    STATE,
    TOP,
    Cutting,
    Killed,
    add,
    archived,
    plain,
    settled,
    shipper,
)

# --- verify


@pytest.mark.alike
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


@pytest.mark.alike
def test_a_chain_that_was_rewritten_is_noticed(local: SqlStore, remote: Remote) -> None:
    archived(local, remote)
    body = remote.get(commit_key(REF, 2)) or b""
    remote.put(commit_key(REF, 2), body.replace(b'"writer":"test"', b'"writer":"evil"'))
    assert [fault.split(":")[0] for fault in verify(local, remote, REF).faults] == [commit_key(REF, 3)]


@pytest.mark.alike
def test_commits_missing_at_the_end_are_noticed_by_whoever_saw_them(local: SqlStore, remote: Remote) -> None:
    archived(local, remote)
    remote.delete([commit_key(REF, 4)])
    assert verify(local, remote, REF).faults == [f"{commit_key(REF, 4)}: missing from the log, and this host saw it"]
    with pytest.raises(DamagedArchiveError, match=r"0004\.json is missing"):
        shipper(local, remote).log.sync()


@pytest.mark.alike
def test_a_commit_that_is_no_json_is_named(local: SqlStore, remote: Remote) -> None:
    archived(local, remote)
    remote.put(commit_key(REF, 4), b"{half")
    faults = verify(local, remote, REF).faults
    assert len([f for f in faults if commit_key(REF, 4) in f]) >= 1


# --- restore


@pytest.mark.alike
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


@pytest.mark.alike
def test_a_restore_that_was_cut_goes_on(local: SqlStore, new_local: Callable[[], SqlStore], remote: Remote) -> None:
    entries = archived(local, remote)
    anew = new_local()
    third = sorted(remote.list("queue=mail/"))[2]
    with pytest.raises(Killed):
        restore(anew, Cutting(remote, "get", third, "before"), REF, now_ms=START_MS)
    assert 0 < anew.stats(REF).rows < 100
    restore(anew, remote, REF, now_ms=START_MS)
    assert plain(anew.records(REF)) == entries


@pytest.mark.alike
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

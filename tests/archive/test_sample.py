"""Checking an archive by and by: some segments a call, the longest unchecked first."""

from __future__ import annotations

from typing import Any

import pytest

from emq_archive.errors import DamagedArchiveError, StoreUnreachableError
from emq_archive.local import SqlStore
from emq_archive.local.catalog import Catalog
from emq_archive.log.commit import commit_key
from emq_archive.ports import Remote
from emq_archive.upkeep.compact import compact
from emq_archive.upkeep.restore import restore
from emq_archive.upkeep.sample import Checked, check_some
from emq_archive.upkeep.verify import verify
from tests.archive.making import REF, START_MS, archived, shipper


class Watched:
    """A remote, and which segments were read whole from it."""

    def __init__(self, remote: Remote) -> None:
        self.remote, self.read = remote, []  # type: Remote, list[str]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.remote, name)

    def get(self, key: str, *, most: int | None = None) -> bytes | None:
        if key.endswith(".parquet"):
            self.read.append(key)
        return self.remote.get(key, most=most)


def look(local: SqlStore, remote: Any, at: int, *, objects: int = 2, most: int = 1 << 30) -> Any:
    return check_some(local, remote, REF, Checked(objects, most), now_ms=START_MS + 1_000_000 + at)


def test_each_comes_once_before_any_comes_again(local: SqlStore, remote: Remote) -> None:
    archived(local, remote, pages=5, each=3)
    keys = [segment.key for segment in Catalog(local, REF).segments()]
    watched = Watched(remote)
    for at in range(10):
        assert look(local, watched, at, objects=1).objects == 1
    assert sorted(watched.read[:5]) == sorted(keys)
    assert watched.read[5:] == watched.read[:5]


def test_bytes_bound_a_call_and_one_segment_always_goes(local: SqlStore, remote: Remote) -> None:
    archived(local, remote, pages=3, each=3)
    [size, *_] = [segment.bytes for segment in Catalog(local, REF).segments()]
    assert look(local, remote, 0, objects=9, most=1).objects == 1
    assert look(local, remote, 1, objects=9, most=2 * size + size // 2).objects == 2


def test_what_is_found_stays_damage_until_all_is_verified(local: SqlStore, remote: Remote) -> None:
    archived(local, remote, pages=3, each=3)
    victim, *others = Catalog(local, REF).segments()
    body = remote.get(victim.key)
    assert body is not None
    remote.put(victim.key, body[:-1] + bytes([body[-1] ^ 1]))
    found = look(local, remote, 0, objects=9)
    assert (found.objects, found.fresh, len(found.faults)) == (len(others), True, 1)
    assert victim.key in found.faults[0]
    assert not look(local, remote, 1, objects=9).fresh
    remote.put(victim.key, body)
    healed = look(local, remote, 2, objects=9)
    assert healed.faults == []
    assert victim.key in (healed.damage or "")  # the others were not looked at again
    assert verify(local, remote, REF).good
    assert look(local, remote, 3).damage is None


def test_a_lost_head_is_found_with_nothing_to_fold(local: SqlStore, remote: Remote) -> None:
    archived(local, remote, pages=2, each=3)
    remote.delete(remote.list("log/"))
    found = look(local, remote, 0)
    assert "missing" in (found.damage or "")


def test_a_segment_that_another_host_merged_is_no_fault(local: SqlStore, remote: Remote, new_local: Any) -> None:
    archived(local, remote, pages=2, each=3)
    other = new_local()
    merging = shipper(other, remote)
    merging.log.read()

    class Late(Watched):
        """The other merges, and deletes, once this host has read the log."""

        def size(self, key: str) -> int | None:
            if key.endswith(".parquet") and not self.read:
                self.read.append(key)
                compact(merging, now_ms=START_MS, grace_ms=0)
                compact(merging, now_ms=START_MS + 1, grace_ms=0)
            return self.remote.size(key)

    found = look(local, Late(remote), 0)
    assert found.faults == []
    assert found.damage is None


def test_a_store_that_does_not_answer_is_no_damage(local: SqlStore, remote: Remote) -> None:
    archived(local, remote, pages=2, each=3)

    class Mute(Watched):
        def size(self, key: str) -> int | None:
            raise StoreUnreachableError("no answer")

    for number in range(2):
        try:
            look(local, Mute(remote), number)
        except StoreUnreachableError:
            continue
        raise AssertionError("it was taken for an answer")
    assert Catalog(local, REF).known().damage is None


def test_a_commit_that_was_put_back_is_no_damage_any_more(local: SqlStore, remote: Remote) -> None:
    archived(local, remote, pages=3, each=3)
    for lsn, find in ((3, lambda: look(local, remote, 0).damage), (2, lambda: verify(local, remote, REF).faults)):
        body = remote.get(commit_key(REF, lsn))
        assert body is not None
        remote.delete([commit_key(REF, lsn)])
        assert commit_key(REF, lsn) in str(find())
        with pytest.raises(DamagedArchiveError, match=f"{lsn}.json"):
            shipper(local, remote).prove((START_MS * 2, 0))
        remote.put(commit_key(REF, lsn), body)
        assert shipper(local, remote).prove((START_MS * 2, 0)).bound is not None
        assert Catalog(local, REF).known().damage is None
        assert look(local, remote, 1).damage is None


def test_a_restore_over_a_log_that_lacks_a_commit_says_so(local: SqlStore, remote: Remote) -> None:
    archived(local, remote, pages=3, each=3)
    remote.delete([commit_key(REF, 2)])
    done = restore(local, remote, REF, now_ms=START_MS)
    assert done.holes == [f"{commit_key(REF, 2)}: missing from the log"]

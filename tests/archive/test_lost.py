"""What the remote lost, and a log that somebody rewrote: found out, told, mended or given up, and never in silence."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from emq_archive.errors import DamagedArchiveError, ForeignStateError
from emq_archive.local import SqlStore
from emq_archive.log.commit import Change, commit_key
from emq_archive.ports import Remote
from emq_archive.read.archive import Archive
from emq_archive.read.query import Query
from emq_archive.remote import open_remote
from emq_archive.upkeep.reship import accept_loss, reship
from emq_archive.upkeep.restore import restore
from emq_archive.upkeep.verify import verify
from emq_ops.protocol.errors import BadInputError
from tests.archive.making import REF, START_MS, add, archived, plain, settled, shipper

"""Each value tells only what it does not share with the one before."""


SOME = [pytest.param(name, marks=pytest.mark.alike) for name in ("log/**/*.json", "log/**/*1.json", "log/**/*4.json")]


@pytest.mark.parametrize("lost", ["**/*", "queue*/**/*.parquet", *SOME], ids=str)
def test_local_rows_are_shipped_again(new_local: Callable[[], SqlStore], folder: Remote, root: Path, lost: str) -> None:
    """Whatever is gone: all of it, the log, one of its commits, its head, the segments."""
    local, other = new_local(), new_local()
    entries = archived(local, folder)
    away = shipper(other, folder)
    away.log.read()
    gone = [path for path in root.glob(lost) if path.is_file()]
    assert gone
    for path in gone:
        path.unlink()
    assert not verify(local, folder, REF).good
    ship = shipper(local, folder)
    planned = reship(ship, now_ms=START_MS, dry_run=True)
    assert not [path for path in gone if path.exists()]
    done = reship(ship, now_ms=START_MS)
    assert (done.segments, done.records, done.commits) == (planned.segments, planned.records, planned.commits)
    assert done.left == []
    assert verify(local, folder, REF).faults == []
    assert plain(Archive(new_local(), folder, REF).read()) == entries
    assert plain(Archive(other, folder, REF).read()) == entries
    # And again there is nothing to do; the archive goes on.
    head = ship.catalog.known().lsn
    assert (reship(ship, now_ms=START_MS).segments, ship.catalog.known().lsn) == (0, head)
    add(local, settled(5, first=200))
    assert shipper(local, folder).ship(now_ms=START_MS, force=True).segments == 1
    assert verify(local, folder, REF).faults == []


@pytest.mark.alike
def test_nothing_is_shipped_into_another_log(local: SqlStore, folder: Remote, root: Path) -> None:
    archived(local, folder)
    with pytest.raises(ForeignStateError):
        reship(shipper(local, folder, state="another"), now_ms=START_MS)
    head = root / commit_key(REF, 4)
    head.write_bytes(head.read_bytes().replace(b'"writer":"test"', b'"writer":"evil"'))
    with pytest.raises(DamagedArchiveError, match="not the one that this host wrote"):
        reship(shipper(local, folder), now_ms=START_MS)


@pytest.mark.alike
def test_one_segment_lost_for_ever(new_local: Callable[[], SqlStore], folder: Remote, root: Path) -> None:
    """The rest is restored, read and asked; the hole is named, until its loss is accepted in the log."""
    first = new_local()
    entries = archived(first, folder)
    keys = sorted(path.relative_to(root).as_posix() for path in root.rglob("*.parquet"))
    (root / keys[1]).unlink()
    rest = entries[:25] + entries[50:]
    local = new_local()
    done = restore(local, folder, REF, now_ms=START_MS)
    assert (done.segments, done.records, len(done.holes)) == (3, 75, 1)
    assert keys[1] in done.holes[0]
    assert "25 records" in done.holes[0]
    fresh = Archive(new_local(), folder, REF)
    with pytest.raises(DamagedArchiveError):
        list(fresh.read())
    fresh.holes = []
    assert (plain(fresh.read()), len(fresh.holes)) == (rest, 1)
    fresh.holes = []
    with Query(fresh) as query:
        assert list(query.run("SELECT count(*) FROM records")[1]) == [(75,)]
    assert len(fresh.holes) == 1
    assert not verify(local, folder, REF).good
    ship = shipper(local, folder)
    assert reship(ship, now_ms=START_MS).left == [keys[1]]
    for refused, why in ((keys[0], "whole"), ("queue=mail/other", "no segment")):
        with pytest.raises(BadInputError, match=why):
            accept_loss(ship, refused, now_ms=START_MS)
    with pytest.raises(BadInputError, match="reship"):
        accept_loss(shipper(first, folder), keys[1], now_ms=START_MS)
    assert accept_loss(ship, keys[1], now_ms=START_MS).records == 25
    assert json.loads((root / commit_key(REF, ship.catalog.known().lsn)).read_bytes())["kind"] == "loss"
    assert verify(local, folder, REF).faults == []
    assert plain(Archive(new_local(), folder, REF).read()) == rest
    # A host that holds the rows ships them once more.
    holder = shipper(first, folder)
    holder.log.sync()
    assert holder.ship(now_ms=START_MS, force=True).records == 25
    assert plain(Archive(new_local(), folder, REF).read()) == entries


@pytest.mark.alike
def test_a_rewritten_history_is_found_out_though_a_commit_was_added(
    local: SqlStore, folder: Remote, root: Path, new_local: Callable[[], SqlStore]
) -> None:
    archived(local, folder)
    noted = verify(local, folder, REF).head
    assert verify(new_local(), folder, REF, expect_head=noted).good
    forged = open_remote(f"file:{root}-forged")
    thief = new_local()
    add(thief, settled(10, first=500))
    made = shipper(thief, forged)
    made.ship(now_ms=START_MS, force=True)
    for _ in range(5):
        made.log.commit(Change(kind="ship", at=START_MS))
    shutil.rmtree(root)
    shutil.copytree(f"{root}-forged", root)
    told = verify(local, folder, REF).faults
    assert any("is not the commit that this host saw" in fault for fault in told), told
    assert verify(new_local(), folder, REF).good
    told = verify(new_local(), folder, REF, expect_head=noted).faults
    assert len(told) == 1
    assert "no commit of the log has the hash" in told[0]


def test_a_catalogue_that_says_other_than_the_log_is_told(local: SqlStore, folder: Remote) -> None:
    archived(local, folder)
    with local.write() as connection:
        connection.exec_driver_sql("DELETE FROM archive_segments WHERE lsn = 2")
    assert "not what the local catalogue says" in verify(local, folder, REF).faults[0]

"""What a stranger put among the objects of a bucket: each is one fault in `verify`'s list, and none is waited for."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from emq_archive.errors import DamagedArchiveError
from emq_archive.local import SqlStore
from emq_archive.log.commit import checkpoint_folder, checkpoint_key, commit_key, log_folder
from emq_archive.log.owners import owners
from emq_archive.ports import Remote
from emq_archive.read.archive import Archive
from emq_archive.read.query import Query
from emq_archive.remote import open_remote
from emq_archive.upkeep.restore import restore
from emq_archive.upkeep.verify import verify
from emq_ops.protocol.errors import one_line
from tests.archive.making import REF, START_MS, archived, plain, shipper


def _socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # its name may have a hundred characters, not its path
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name[-20:])
        os.rename(path.name[-20:], path.name)
    finally:
        os.chdir(here)


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


def _full_folder(path: Path) -> None:
    path.mkdir()
    (path / "x").write_bytes(b"x")


MAKES = [os.mkfifo, os.mkdir, _full_folder, _socket, _loop]


@pytest.fixture
def whole(local: SqlStore, root: Path) -> Remote:
    """An archive of four segments, with a checkpoint."""
    remote = open_remote(f"file:{root}")
    archived(local, remote)
    shipper(local, remote).log.checkpoint()
    return remote


@pytest.mark.parametrize("make", MAKES, ids=lambda make: make.__name__)
def test_what_is_no_file_is_one_fault_where_it_stands(
    local: SqlStore, whole: Remote, root: Path, make: Callable[[Path], None]
) -> None:
    """In the place of a commit, a checkpoint and a segment: the list names each, and the rest is looked through."""
    segment = sorted(root.glob("queue*/**/*.parquet"))[2]
    for found in (root / commit_key(REF, 2), root / checkpoint_key(REF, 4), segment):
        found.unlink()
        make(found)
    done = verify(local, whole, REF)
    keys = [commit_key(REF, 2), checkpoint_key(REF, 4), segment.relative_to(root).as_posix()]
    if make is os.mkdir:
        keys.pop(1)  # an empty folder is not listed, and a log need not have checkpoints
    for key in keys:
        assert any(key in fault for fault in done.faults), (key, done.faults)
    assert done.commits >= 3
    assert done.records >= 50


@pytest.mark.parametrize("make", MAKES, ids=lambda make: make.__name__)
@pytest.mark.alike
def test_readers_name_what_is_no_file_and_go_on(
    new_local: Callable[[], SqlStore], whole: Remote, root: Path, make: Callable[[Path], None]
) -> None:
    found = sorted(root.glob("queue*/**/*.parquet"))[1]
    found.unlink()
    make(found)
    done = restore(new_local(), whole, REF, now_ms=START_MS)
    assert (done.records, len(done.holes)) == (75, 1)
    archive = Archive(new_local(), whole, REF)
    archive.holes = []
    assert (len(plain(archive.read())), len(archive.holes)) == (75, 1)
    with Query(archive) as query:
        assert list(query.run("SELECT count(*) FROM records")[1]) == [(75,)]


def test_odd_names_among_commits_and_checkpoints_are_faults(
    local: SqlStore, new_local: Callable[[], SqlStore], remote: Remote
) -> None:
    """And nobody else stumbles over them: they are none of the archive. A folder as consoles of stores make one is no
    object."""
    entries = archived(local, remote)
    shipper(local, remote).log.checkpoint()
    log, checkpoints = log_folder(REF), checkpoint_folder(REF)
    odd = [
        *(checkpoints + name for name in ("0.json.gz", "\u202eabc.json.gz", "\u00b2" * 20, f"a/{'9' * 20}.json.gz")),
        *(log + name for name in ("!x", "0x", f"0/{3:020d}.json", f"{0:020d}.json", f"{9:020d}.txt", "zz", "\u202e")),
        f"{log}{10**20 - 1}.json",
    ]
    for key in odd:
        remote.create(key, b"x")
    faults = verify(local, remote, REF).faults
    assert sorted(fault.partition(": ")[0] for fault in faults) == sorted(map(one_line, odd))
    assert plain(Archive(new_local(), remote, REF).read()) == entries
    assert [owner.ref for owner in owners(remote)] == [REF]


def test_a_name_that_is_no_text_is_told_in_signs(local: SqlStore, whole: Remote, root: Path) -> None:
    Path(os.fsdecode(os.fsencode(root / log_folder(REF)) + b"/z\xff\x1b[31m")).write_bytes(b"x")
    [fault] = verify(local, whole, REF).faults
    assert fault.endswith("z\\udcff\\x1b[31m: is no commit of ours")


def test_numbers_without_end_are_no_list(local: SqlStore, whole: Remote, root: Path) -> None:
    """A commit of an immense number, and one that gives immense numbers up for lost."""
    path = root / commit_key(REF, 4)
    told = json.loads(path.read_bytes())
    path.write_bytes(json.dumps({**told, "lost": [[1, 10**18]]}).encode())
    (root / commit_key(REF, 10**18)).write_bytes(b"{}")
    faults = verify(local, whole, REF).faults
    assert any("numbers after the one before it" in fault for fault in faults)


@pytest.mark.parametrize("up", ["..", "../..", "."])
def test_links_that_lead_back_have_no_end_and_are_not_followed(
    local: SqlStore, whole: Remote, root: Path, up: str
) -> None:
    for name in ("a", "b", "c"):
        (root / checkpoint_folder(REF) / name).symlink_to(up)
    assert len(verify(local, whole, REF).faults) == 3


def test_a_folder_that_is_a_link_is_a_folder(local: SqlStore, whole: Remote, root: Path) -> None:
    """Such as one on another disk."""
    (root / "log").rename(root.parent / "elsewhere")
    (root / "log").symlink_to(root.parent / "elsewhere")
    assert verify(local, whole, REF).good


@pytest.mark.alike
def test_an_entry_of_a_kind_that_is_not_known_is_refused(
    local: SqlStore, new_local: Callable[[], SqlStore], whole: Remote, root: Path
) -> None:
    """What a newer version does by it, this one can't know: nothing is built on it."""
    path = root / commit_key(REF, 4)
    told = json.loads(path.read_bytes())
    path.write_bytes(json.dumps({**told, "kind": "merge"}).encode())
    (root / checkpoint_key(REF, 4)).unlink()
    for call in (
        lambda: restore(new_local(), whole, REF, now_ms=START_MS),
        lambda: list(Archive(new_local(), whole, REF).read()),
        lambda: list(owners(whole)),
    ):
        with pytest.raises(DamagedArchiveError, match="of kind 'merge', and this version knows ship, ") as told_so:
            call()
        assert "newer emq-ops" in str(told_so.value.fix)
    assert any("of kind 'merge'" in fault for fault in verify(local, whole, REF).faults)

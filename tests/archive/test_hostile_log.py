"""A log that somebody wrote who may not: commits and checkpoints that lie, and what a signature proves."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emq_archive.errors import DamagedArchiveError
from emq_archive.local import SqlStore
from emq_archive.local.catalog import Catalog
from emq_archive.log.commit import Change, checkpoint_key, commit_key, lsn_of
from emq_archive.ports import Remote
from emq_archive.read.archive import Archive
from emq_archive.remote import open_remote
from emq_archive.upkeep.verify import verify
from tests.archive.making import REF, START_MS, add, archived, plain, settled, shipper

HOSTILE = [b"[" * 200_000, b"{" * 200_000, b'{"format":1,"lsn":1,"add":7}', b"[]", b"null", b'"x"', b"\xff\xfe", b""]


SEGMENT = {
    "key": "queue=mail/a.parquet",
    "sha256": "0" * 64,
    "bytes": 1,
    "weight": 1,
    "records": 1,
    "first": "1-0",
    "last": "1-0",
    "incarnation": 0,
    "day": 0,
    "time_min": 1,
    "time_max": 1,
    "job_min": None,
    "job_max": None,
    "evt": None,
}
COMMIT = {
    "format": 1,
    "lsn": 1,
    "kind": "ship",
    "queue": REF.queue,
    "stream": REF.stream,
    "source": "stream",
    "state": "s",
    "previous": "",
    "writer": "w",
    "nonce": "0" * 32,
    "token": 1,
    "at": 1,
    "remove": [],
}


@pytest.mark.parametrize("body", HOSTILE, ids=lambda body: repr(body[:12]))
@pytest.mark.alike
def test_a_hostile_commit_is_named(local: SqlStore, folder: Remote, body: bytes) -> None:
    folder.create(commit_key(REF, 1), body)
    for remote in (folder, open_remote(folder.url, sign="k1")):
        with pytest.raises(DamagedArchiveError, match=r"00001\.json"):
            shipper(local, remote).log.read()
    assert "00001.json" in verify(local, folder, REF).faults[0]


@pytest.mark.parametrize("body", [*HOSTILE, b"0" * 900], ids=lambda body: repr(body[:12]))
@pytest.mark.alike
def test_a_hostile_checkpoint_is_named(
    local: SqlStore, folder: Remote, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that would unpack to more than any of ours."""
    monkeypatch.setattr("emq_archive.log.log.MAX_CHECKPOINT_BYTES", 800_000)
    packed = gzip.compress(body if len(body) != 900 else body * 1000)
    folder.create(commit_key(REF, 1), b"{}\n")
    folder.create(checkpoint_key(REF, 1), packed)
    with pytest.raises(DamagedArchiveError, match=r"checkpoint.*can't be read"):
        shipper(local, folder).log.read()


@pytest.mark.alike
def test_an_object_that_is_too_large_is_not_read(
    new_local: Callable[[], SqlStore], remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote.create(commit_key(REF, 1), b" " * 10_000)
    monkeypatch.setattr("emq_archive.log.log.MAX_COMMIT_BYTES", 9_999)
    with pytest.raises(DamagedArchiveError, match="has 10000 bytes, more than the 9999"):
        shipper(new_local(), remote).log.read()


@pytest.mark.alike
def test_a_key_that_signs_changes(new_local: Callable[[], SqlStore], root: Path) -> None:
    """The new one signs from then on, and the old one is believed beside it; neither is enough by itself."""
    old, both, new = (open_remote(f"file:{root}", sign=key) for key in ("k1", "k2, k1", "k2"))
    local = new_local()
    archived(local, old)
    add(local, settled(5, first=300))
    shipper(local, both).ship(now_ms=START_MS, force=True)
    assert verify(local, both, REF).faults == []
    assert len(plain(Archive(new_local(), both, REF).read())) == 105
    for one in (old, new):
        with pytest.raises(DamagedArchiveError, match="another key, or was altered"):
            shipper(new_local(), one).log.read()


@pytest.mark.alike
def test_a_signed_log_is_believed_by_its_signature_alone(new_local: Callable[[], SqlStore], root: Path) -> None:
    """A key is taken up by whoever knows the log; from then on nobody without it can go on, or make up another."""
    url = f"file:{root}"
    plainly, secretly, wrongly = open_remote(url), open_remote(url, sign="k1"), open_remote(url, sign="k2")
    local = new_local()
    entries = archived(local, plainly)
    with pytest.raises(DamagedArchiveError, match="not signed"):
        shipper(new_local(), secretly).log.read()
    add(local, settled(5, first=200))
    ship = shipper(local, secretly)
    ship.log.checkpoint_every = 1
    ship.ship(now_ms=START_MS, force=True)
    assert verify(local, secretly, REF).faults == []
    assert plain(Archive(new_local(), secretly, REF).read()) == entries + settled(5, first=200)
    assert plain(Archive(new_local(), plainly, REF).read()) == entries + settled(5, first=200)
    with pytest.raises(DamagedArchiveError, match="another key, or was altered"):
        shipper(new_local(), wrongly).log.read()
    # Somebody without the key goes on, as well as he can.
    thief = shipper(new_local(), plainly)
    thief.log.sync()
    thief.log.commit(Change(kind="ship", at=START_MS))
    for host in (local, new_local()):
        with pytest.raises(DamagedArchiveError, match="not signed"):
            shipper(host, secretly).log.read()
    assert "not signed" in verify(local, secretly, REF).faults[0]


@pytest.mark.alike
def test_a_checkpoint_that_was_made_up_is_not_believed(new_local: Callable[[], SqlStore], root: Path) -> None:
    secretly = open_remote(f"file:{root}", sign="k1")
    local = new_local()
    archived(local, secretly)
    ship = shipper(local, secretly)
    ship.log.checkpoint()
    path = root / checkpoint_key(REF, 4)
    told = json.loads(gzip.decompress(path.read_bytes()))
    told["segments"].pop()
    path.write_bytes(gzip.compress(json.dumps(told).encode()))
    with pytest.raises(DamagedArchiveError, match="altered"):
        shipper(new_local(), secretly).log.read()


def test_a_segment_that_is_far_too_large_is_not_even_read(local: SqlStore, folder: Remote, root: Path) -> None:
    """Sparse, so that reading it whole would take the memory."""
    archived(local, folder, pages=1, each=5)
    [segment] = Catalog(local, REF).segments()
    with open(root / segment.key, "r+b") as file:
        file.truncate(1 << 40)
    [fault] = verify(local, folder, REF).faults
    assert segment.key in fault
    assert str(1 << 40) in fault
    with pytest.raises(DamagedArchiveError, match="completions/date="):
        shipper(local, folder).read_segment(segment)


LIES = [
    *[
        {"add": [{**SEGMENT, name: value}]}
        for name in ("records", "bytes", "day")
        for value in ("7", 1e999, 2**63, None)
    ],
    *[{"add": [{**SEGMENT, **lie}]} for lie in ({"records": -1}, {"sha256": None}, {"key": "a/../../b"}, {"evt": 7})],
    *[
        {"state": "\0"},
        {"writer": "\ud800"},
        {"token": "\x1b[31m"},
        {"at": 10**30},
        {"opens": 10**40},
        {"kind": []},
        {"state": None},
        {"writer": 7},
    ],
]


@pytest.mark.parametrize("lie", LIES, ids=ascii)
@pytest.mark.alike
def test_a_commit_that_says_what_none_can_say_is_named(local: SqlStore, folder: Remote, lie: dict[str, Any]) -> None:
    """Never taken over, and never a fault of the database or of ours."""
    folder.create(commit_key(REF, 1), json.dumps({**COMMIT, "add": [SEGMENT]} | lie).encode())
    with pytest.raises(DamagedArchiveError, match=r"00001\.json can't be read: "):
        shipper(local, folder).log.read()
    assert "00001.json can't be read" in verify(local, folder, REF).faults[0]


@pytest.mark.parametrize(
    "lie", [{"records": "7"}, {"key": "../b"}, {"sha256": None}, {"lsn": 10**30}, {"key": "a\ud800"}], ids=ascii
)
@pytest.mark.alike
def test_a_checkpoint_that_says_what_none_can_say_is_named(
    local: SqlStore, folder: Remote, lie: dict[str, Any]
) -> None:
    body = json.dumps({**COMMIT, "add": []}).encode()
    told = {name: COMMIT[name] for name in ("format", "lsn", "state", "token", "at")}
    lists: dict[str, Any] = {"removed": [], "erased": [], "redactions": [], "segments": [{**SEGMENT, "lsn": 1, **lie}]}
    folder.create(commit_key(REF, 1), body)
    snapshot = {**told, **lists, "opened": 0, "head": hashlib.sha256(body).hexdigest()}
    folder.create(checkpoint_key(REF, 1), gzip.compress(json.dumps(snapshot).encode()))
    with pytest.raises(DamagedArchiveError, match=r"checkpoint.*can't be read: "):
        shipper(local, folder).log.read()


def test_an_object_named_by_other_digits_is_no_commit() -> None:
    assert lsn_of(f"log/q/s/{chr(0xB2) * 20}.json") is None

"""Records that expired while they stood in the stream: no process archives them again, and other bytes are not them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from emq_archive.errors import DamagedArchiveError
from emq_archive.local import SqlStore
from emq_archive.local.checkpoint import snapshot_of
from emq_archive.log.log import CommitLog
from emq_archive.model import FIRST_ID, Redact, StreamId
from emq_archive.ports import Remote
from emq_archive.upkeep.compact import expire
from emq_archive.upkeep.restore import restore
from emq_archive.upkeep.verify import verify
from emq_archive.write.ship import LogShipper
from emq_ops.cli.main import main
from emq_ops.protocol.server import Server
from tests.archive.folding import Host
from tests.archive.making import DAY_MS, START_MS, add, entry, shipper
from tests.support.valkey import Valkey

HEADS = [FIRST_ID, (START_MS + 3, 0), None]


def expired(host: Host, head: StreamId | None = FIRST_ID) -> int:
    """Lets all go that is in the archive; answers how many records that were."""
    ship = host.driver.shipper
    assert isinstance(ship, LogShipper)
    return expire(ship, now_ms=START_MS + 9 * DAY_MS, older_than_ms=DAY_MS, head=head, grace_ms=0).records


def filled(server: Server, root: Path) -> Host:
    host = Host.in_folder(server, root)
    host.add(*(f"{START_MS + i}-0" for i in range(10)), tag="a", card="4111")
    return host


@pytest.mark.parametrize("head", [FIRST_ID, (START_MS, 0)])
def test_not_archived_again_and_a_trim_may_take_them(server: Server, tmp_path: Path, head: StreamId) -> None:
    host = filled(server, tmp_path)
    host.driver.cycle(force=True)
    assert expired(host, head) == 10
    assert host.archived() == host.rows() == []
    report = host.anew().cycle(force=True)  # the next process reads the stream from its head
    assert (report.folded, report.known, report.shipped) == (0, 10, 0)
    host.add(f"{START_MS + 20}-0")
    report = host.anew(keep=3).cycle(force=True)
    assert (report.folded, report.shipped, report.trimmed) == (1, 1, 8)
    assert host.archived() == host.rows() == host.sent[-1:]
    assert verify(host.local, host.remote, host.driver.source.ref).good
    host.close()


def test_nor_by_another_host_or_after_a_restore(server: Server, tmp_path: Path) -> None:
    """Host b read them before and has them in its outbox; host c comes anew; host d is restored from the remote."""
    host, b = filled(server, tmp_path), Host.in_folder(server, tmp_path, "b")
    b.driver.cycle()
    host.driver.cycle(force=True)
    expired(host)
    host.add(f"{START_MS + 20}-0")
    c, d = Host.in_folder(server, tmp_path, "c"), Host.in_folder(server, tmp_path, "d")
    restore(d.local, d.remote, d.driver.source.ref, now_ms=START_MS)
    for other in (b, c, d):
        other.driver.cycle(force=True)
        assert host.archived() == host.sent[-1:]
        assert other.driver.report.unshipped == 0
        other.close()
    host.close()


def test_other_bytes_under_the_same_id_are_another_record(server: Server, tmp_path: Path) -> None:
    host = filled(server, tmp_path)
    host.driver.cycle(force=True)
    expired(host)
    server.write("DEL", host.key)
    host.sent.clear()
    host.add(*(f"{START_MS + i}-0" for i in range(10)), tag="b")
    host.anew().cycle(force=True)
    assert host.archived() == host.sent
    host.close()


def test_what_was_redacted_is_known_again(server: Server, tmp_path: Path) -> None:
    host = filled(server, tmp_path)
    host.anew(redact=Redact(drop=("tag",), hash=("card",), salt="one")).cycle(force=True)
    assert len(host.archived()) == 10
    expired(host)
    for redaction in (Redact(), Redact(hash=("card",), salt="another")):
        assert host.anew(redact=redaction).cycle(force=True).known == 10
        assert host.archived() == []
    host.close()


def test_a_checkpoint_carries_them(
    new_local: Callable[[], SqlStore], remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CommitLog, "checkpoint_every", 3)
    local, other = new_local(), new_local()
    entries = [entry(f"{START_MS + i}-0") for i in range(9)]
    ship = shipper(local, remote)
    for at in range(0, 9, 3):
        add(local, entries[at : at + 3])
        ship.ship(now_ms=START_MS, force=True)
    expire(ship, now_ms=START_MS + 9 * DAY_MS, older_than_ms=DAY_MS, head=(START_MS + 4, 0))
    for i in (10, 11):  # the checkpoint comes after the expiry, and hosts begin with it
        add(local, [entry(f"{START_MS + i}-0")])
        ship.ship(now_ms=START_MS, force=True)
    shipper(other, remote).log.read()
    added = add(other, entries)
    assert (added.new, added.known) == (4, 5)


def test_a_damaged_checkpoint_is_named(
    new_local: Callable[[], SqlStore], remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CommitLog, "checkpoint_every", 1)
    local = new_local()
    add(local, [entry(f"{START_MS + i}-0") for i in range(9)])
    shipper(local, remote).ship(now_ms=START_MS, force=True)
    [key] = remote.list("log/mail/completions/checkpoint/")
    body = remote.get(key) or b""
    for place in (0, 12, len(body) // 2, len(body) - 6, len(body) - 1):
        remote.put(key, body[:place] + bytes([body[place] ^ 0x55]) + body[place + 1 :])
        with pytest.raises(DamagedArchiveError) as told:
            shipper(new_local(), remote).log.read()
        assert told.value.faults == (key,)
    remote.put(key, body)
    assert shipper(new_local(), remote).log.read().lsn == 1


@pytest.mark.parametrize("head", HEADS)
def test_only_what_may_still_be_read_is_noted(local: SqlStore, remote: Remote, head: StreamId | None) -> None:
    entries = [entry(f"{START_MS + i}-0") for i in range(5)]
    add(local, entries)
    ship = shipper(local, remote)
    ship.ship(now_ms=START_MS, force=True)
    expire(ship, now_ms=START_MS + 9 * DAY_MS, older_than_ms=DAY_MS, head=head)
    kept = {FIRST_ID: 5, None: 0}.get(head, 2)
    told = json.loads(remote.get("log/mail/completions/00000000000000000002.json") or b"").get("let_go")
    assert (told is None) == (kept == 0)
    assert add(local, entries).known == kept
    # What the stream has passed is forgotten.
    expire(ship, now_ms=START_MS + 9 * DAY_MS, older_than_ms=DAY_MS, head=(START_MS + 5, 0))
    assert not snapshot_of(ship.catalog)["let_go"]


def test_the_command_asks_the_stream(
    server: Server, valkey: Valkey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    host = filled(server, tmp_path)
    where = ["--url", valkey.url, "--local", host.local_url, "--remote", host.remote_url, "archive"]
    for verb in (["fold", "--keep", "4"], ["expire", "--older-than", "1s", "--yes"], ["fold", "--keep", "2"]):
        assert main([*where, verb[0], "mail", "completions", *verb[1:]]) == 0
    assert host.archived() == []
    assert len(host.left()) == 2
    host.close()

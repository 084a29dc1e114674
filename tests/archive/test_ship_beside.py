"""Shipping after an earlier try, beside other writers, and onto what was changed: nothing twice, nothing on damage."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from emq_archive.errors import DamagedArchiveError, DeposedError, ForeignStateError, LostRaceError
from emq_archive.local import SqlStore
from emq_archive.log.commit import Change, commit_key
from emq_archive.model import parse_id
from emq_archive.ports import Remote
from emq_archive.remote import open_remote
from tests.archive.making import REF, START_MS, TOP, Cutting, Killed, add, as_seen, plain, seen, settled, shipper


@pytest.mark.alike
def test_two_hosts_with_databases_of_their_own_double_nothing(
    new_local: Callable[[], SqlStore], remote: Remote
) -> None:
    entries = settled(400)
    one, two = new_local(), new_local()
    add(one, entries[:250])
    shipper(one, remote).ship(now_ms=START_MS, force=True)
    add(two, entries[100:400])
    second = shipper(two, remote)
    done = second.ship(now_ms=START_MS, force=True)
    assert (done.records, done.found) == (300, 150)
    assert seen(remote) == as_seen(entries)
    assert second.prove(TOP).bound == TOP
    assert plain(two.records(REF)) == entries[100:]
    # The first host reads it all again, as after losing its database.
    three = new_local()
    add(three, entries)
    done = shipper(three, remote).ship(now_ms=START_MS, force=True)
    assert (done.found, done.segments) == (400, 0)
    assert seen(remote) == as_seen(entries)


def test_a_commit_that_was_not_noted_here_is_found_again(local: SqlStore, remote: Remote) -> None:
    """As after a kill between the commit and the note of it."""
    entries = settled(50)
    add(local, entries)
    with pytest.raises(Killed):
        shipper(local, Cutting(remote, "create", "log/", "after")).ship(now_ms=START_MS, force=True)
    again = shipper(local, remote)
    done = again.ship(now_ms=START_MS, force=True)
    assert (done.records, done.found, done.segments) == (50, 50, 0)
    assert seen(remote) == as_seen(entries)


@pytest.mark.alike
def test_a_segment_without_a_commit_is_written_again_under_its_name(local: SqlStore, remote: Remote) -> None:
    entries = settled(50)
    add(local, entries)
    with pytest.raises(Killed):
        shipper(local, Cutting(remote, "create", "log/", "before")).ship(now_ms=START_MS, force=True)
    orphan = remote.list("queue=mail/")
    assert len(orphan) == 1
    shipper(local, remote).ship(now_ms=START_MS, force=True)
    assert remote.list("queue=mail/") == orphan
    assert seen(remote) == as_seen(entries)


@pytest.mark.alike
def test_an_object_with_other_bytes_under_a_segments_name_is_passed_by(local: SqlStore, remote: Remote) -> None:
    entries = settled(50)
    add(local, entries)
    with pytest.raises(Killed):
        shipper(local, Cutting(remote, "create", "log/", "before")).ship(now_ms=START_MS, force=True)
    (orphan,) = remote.list("queue=mail/")
    remote.put(orphan, (remote.get(orphan) or b"")[:-100])
    shipper(local, remote).ship(now_ms=START_MS, force=True)
    assert seen(remote) == as_seen(entries)
    assert len(remote.list("queue=mail/")) == 2


def test_racing_writers_go_on_from_each_others_heads(new_local: Callable[[], SqlStore], tmp_path: Any) -> None:
    """On a directory, whose create-only is atomic; S3 is raced in the fault harness, behind a proxy that serialises."""
    stores = [new_local() for _ in range(3)]
    entries = settled(300)
    faults: list[BaseException] = []

    def host(store: SqlStore, start: int) -> None:
        try:
            ship = shipper(store, open_remote(f"file:{tmp_path}/raced"))
            for at in range(0, 300, 50):
                add(store, entries[max(0, at - start) : at + 50])
                ship.ship(now_ms=START_MS, force=True)
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=host, args=(store, 20 * i)) for i, store in enumerate(stores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert seen(open_remote(f"file:{tmp_path}/raced")) == as_seen(entries)


@pytest.mark.alike
def test_another_state_and_a_higher_token_are_refused(new_local: Callable[[], SqlStore], remote: Remote) -> None:
    one, two = new_local(), new_local()
    add(one, settled(5))
    add(two, settled(9))
    shipper(one, remote, token=7).ship(now_ms=START_MS, force=True)
    with pytest.raises(ForeignStateError, match="belongs to state"):
        shipper(two, remote, state="another").ship(now_ms=START_MS, force=True)
    with pytest.raises(DeposedError, match="token 7, ours is 6"):
        shipper(two, remote, token=6).ship(now_ms=START_MS, force=True)
    assert two.outbox(REF).records == 9
    assert shipper(two, remote, token=8).ship(now_ms=START_MS, force=True).found == 5


def test_a_lost_reply_of_a_commit_is_ours_by_its_nonce_and_bytes(local: SqlStore, remote: Remote) -> None:
    entries = settled(5)
    add(local, entries)
    ship = shipper(local, Cutting(remote, "create", "", "again"))
    assert ship.ship(now_ms=START_MS, force=True).records == 5
    assert seen(remote) == as_seen(entries)


@pytest.mark.alike
def test_another_writers_commit_is_not_taken_for_ours(new_local: Callable[[], SqlStore], remote: Remote) -> None:
    one, two = new_local(), new_local()
    add(one, settled(5))
    add(two, settled(3, first=10))
    first, second = shipper(one, remote), shipper(two, remote)
    second.log.sync()
    first.ship(now_ms=START_MS, force=True)
    with pytest.raises(LostRaceError):
        second.log.commit(Change(kind="ship", at=START_MS))
    second.ship(now_ms=START_MS, force=True)
    assert seen(remote) == as_seen(settled(5) + settled(3, first=10))


@pytest.mark.parametrize("harm", ["missing", "truncated", "flipped", "no commit", "other commit"])
def test_nothing_is_proven_on_top_of_a_damaged_archive(local: SqlStore, remote: Remote, harm: str) -> None:
    entries = settled(50)
    add(local, entries)
    shipper(local, remote).ship(now_ms=START_MS, force=True)
    (key,) = remote.list("queue=mail/")
    body = remote.get(key) or b""
    if harm == "missing":
        remote.delete([key])
    elif harm == "truncated":
        remote.put(key, body[:-7])
    elif harm == "flipped":
        remote.put(key, body[:100] + bytes([body[100] ^ 1]) + body[101:])
    elif harm == "no commit":
        remote.delete([commit_key(REF, 1)])
        key = commit_key(REF, 1)
    else:
        told = remote.get(commit_key(REF, 1)) or b""
        remote.put(commit_key(REF, 1), told.replace(b'"records":50', b'"records":51'))
        key = "commit"
    anew = shipper(local, remote)  # a new process: what it did not read back, it reads before a trim
    with pytest.raises(DamagedArchiveError, match=key):
        anew.prove(TOP)
    assert anew.prove(parse_id(entries[0][0]), start=parse_id(entries[0][0])).bound == parse_id(entries[0][0])


@pytest.mark.parametrize("fresh", [False, True], ids=["the same process", "another one"])
@pytest.mark.parametrize("harm", ["missing", "other bytes"])
@pytest.mark.alike
def test_nothing_is_built_on_a_head_that_was_changed(local: SqlStore, remote: Remote, harm: str, fresh: bool) -> None:
    entries = settled(50)
    ship = shipper(local, remote)
    for at in (0, 20):
        add(local, entries[at : at + 20])
        ship.ship(now_ms=START_MS, force=True)
    key = commit_key(REF, 2)
    head = remote.get(key) or b""
    if harm == "missing":
        remote.delete([key])
    else:
        remote.put(key, head.replace(b'"writer":"', b'"writer":"x'))
    add(local, entries[40:])
    if fresh:
        ship = shipper(local, remote)
        with pytest.raises(DamagedArchiveError, match=key):
            ship.prove(parse_id(entries[10][0]))  # the segments that are asked for are sound
    with pytest.raises(DamagedArchiveError, match=key):
        ship.ship(now_ms=START_MS, force=True)
    assert remote.get(commit_key(REF, 3)) is None
    assert local.outbox(REF).records == 10
    remote.put(key, head)
    assert ship.ship(now_ms=START_MS, force=True).lsn == 3
    assert (ship.prove(TOP).bound, seen(remote)) == (TOP, as_seen(entries))

"""Shipping and proving, on every pair of local database and object store; the oracle reads the bucket by itself."""

from __future__ import annotations

import io
from collections.abc import Callable

import pyarrow.parquet as pq
import pytest

from emq_archive.errors import DamagedArchiveError
from emq_archive.local import SqlStore
from emq_archive.model import FIRST_ID, Policy, Redact, StreamRef, next_id, parse_id
from emq_archive.ports import Remote
from emq_archive.remote import open_remote
from tests.archive.making import (
    DAY_MS,
    REF,
    START_MS,
    TOP,
    Cutting,
    Killed,
    add,
    as_seen,
    entry,
    seen,
    settled,
    shipper,
)
from tests.support.oracle import Seen


def test_a_page_becomes_a_segment_and_is_proven(local: SqlStore, remote: Remote) -> None:
    entries = settled(200)
    add(local, entries)
    ship = shipper(local, remote)
    assert not ship.due(START_MS)
    assert ship.due(START_MS + 60_000)
    assert ship.prove(TOP).bound == parse_id(entries[0][0])
    assert ship.ship(now_ms=START_MS).records == 0  # not due, not forced: no request
    done = ship.ship(now_ms=START_MS + 60_000)
    assert (done.records, done.segments, done.lsn) == (200, 1, 1)
    assert done.watermark == entries[-1][1][1].decode()
    assert seen(remote) == as_seen(entries)
    receipt = ship.prove(TOP)
    assert (receipt.bound, receipt.lsn) == (TOP, 1)
    assert local.outbox(REF).records == 0


@pytest.mark.alike
def test_full_segments_ship_before_they_are_old(local: SqlStore, remote: Remote) -> None:
    entries = settled(900)
    ship = shipper(local, remote, segment_bytes=20_000)
    for at in range(0, 900, 100):
        add(local, entries[at : at + 100])
        if ship.due(START_MS):
            ship.ship(now_ms=START_MS)
    waiting = local.outbox(REF)
    assert 0 < waiting.bytes < 20_000
    done = ship.ship(now_ms=START_MS, force=True)
    assert done.records == waiting.records
    assert seen(remote) == as_seen(entries)


@pytest.mark.alike
def test_one_utc_day_a_segment(local: SqlStore, remote: Remote) -> None:
    entries = settled(30, step_ms=DAY_MS // 8)
    add(local, entries)
    shipper(local, remote).ship(now_ms=START_MS, force=True)
    keys = remote.list("queue=mail/stream=completions/date=")
    assert len(keys) == len({key.split("/")[2] for key in keys}) >= 4
    assert seen(remote) == as_seen(entries)


def test_c04_and_c13_in_parquet(local: SqlStore, remote: Remote) -> None:
    top = 18446744073709551615
    entries = [
        entry(f"1-{top}", "tag", "a", "tag", "b", "note", "x"),
        entry("2-0", b"\xff", b"", b"", b"\xfe\x00"),
        entry(f"{top}-{top}", "far", "away"),
    ]
    add(local, entries)
    shipper(local, remote).ship(now_ms=START_MS, force=True)
    assert seen(remote) == as_seen(entries)
    (first,) = [k for k in remote.list("queue=mail/") if "1970-01-01" in k]
    row = pq.read_table(io.BytesIO(remote.get(first) or b"")).to_pylist()[0]
    assert (row["ms"], row["seq"]) == (1, top)
    assert [(f["name"], f["value"]) for f in row["fields"]] == [(b"tag", b"a"), (b"tag", b"b"), (b"note", b"x")]


@pytest.mark.alike
def test_a_stream_made_anew_opens_an_incarnation_in_the_log(new_local: Callable[[], SqlStore], remote: Remote) -> None:
    one, two = new_local(), new_local()
    before = [entry("1-0", "a", "1"), entry("2-0", "a", "2")]
    after = [entry("1-0", "a", "new"), entry("2-0", "a", "2"), entry("3-0", "a", "3")]
    add(one, before)
    shipper(one, remote).ship(now_ms=START_MS, force=True)
    add(two, after)  # this host never saw the earlier life
    done = shipper(two, remote).ship(now_ms=START_MS, force=True)
    assert (done.found, done.incarnations) == (1, 1)
    add(one, after)
    done = shipper(one, remote).ship(now_ms=START_MS, force=True)
    assert (done.found, done.segments) == (2, 0)
    assert seen(remote) == sorted([*as_seen(before), Seen.of("1-0", [b"a", b"new"]), Seen.of("3-0", [b"a", b"3"])])
    assert [(r.stream_id, r.incarnation) for r in one.records(REF)] == [("1-0", 0), ("1-0", 1), ("2-0", 0), ("3-0", 0)]


def test_a_cycle_with_nothing_due_asks_the_remote_nothing(local: SqlStore, remote: Remote) -> None:
    add(local, settled(50))
    ship = shipper(local, remote)
    ship.ship(now_ms=START_MS, force=True)
    add(local, settled(5, first=50))
    ship.remote = ship.log.remote = open_remote("file:/nonexistent/never/used")  # whatever is asked of it fails
    assert ship.ship(now_ms=START_MS).records == 0
    assert ship.prove(parse_id(settled(50)[-1][0])).lsn == 1


@pytest.mark.alike
def test_only_the_segments_of_what_may_go_are_read_again(local: SqlStore, remote: Remote) -> None:
    entries = settled(100)
    ship = shipper(local, remote)
    for at in range(0, 100, 10):
        add(local, entries[at : at + 10])
        ship.ship(now_ms=START_MS, force=True)
    keys = remote.list("queue=mail/")
    remote.delete(keys[6:])
    anew = shipper(local, remote)
    bound = parse_id(entries[55][0])
    assert anew.prove(bound, start=parse_id(entries[30][0])).bound == bound
    with pytest.raises(DamagedArchiveError):
        anew.prove(parse_id(entries[65][0]), start=parse_id(entries[30][0]))


@pytest.mark.alike
def test_the_bound_stops_at_what_is_not_shipped(local: SqlStore, remote: Remote) -> None:
    entries = settled(40)
    add(local, entries[10:])
    ship = shipper(local, remote)
    ship.ship(now_ms=START_MS, force=True)
    add(local, entries[:10])  # late and lower
    assert ship.prove(TOP).bound == parse_id(entries[0][0])
    ship.ship(now_ms=START_MS, force=True)
    assert ship.prove(TOP).bound == TOP
    assert seen(remote) == as_seen(entries)


def test_trimming_after_local_asks_the_remote_nothing(local: SqlStore) -> None:
    add(local, settled(5))
    ship = shipper(local, open_remote("file:/nonexistent/never/used"), trim_after="local")
    receipt = ship.prove(TOP)
    assert (receipt.bound, receipt.lsn, receipt.trim_after) == (TOP, None, "local")


@pytest.mark.alike
def test_redacted_fields_reach_no_object(local: SqlStore, new_local: Callable[[], SqlStore], remote: Remote) -> None:
    entries = settled(20, email="ada@example.org", card="4111-1111")
    policy = Policy(redact=Redact(drop=("card",), hash=("email",), salt="pepper"))
    add(local, entries, policy=policy)
    shipper(local, remote, redact=policy.redact).ship(now_ms=START_MS, force=True)
    for key in [*remote.list("queue="), *remote.list("log/"), *remote.list("manifest/")]:
        body = remote.get(key) or b""
        assert b"4111" not in body
        assert b"example.org" not in body
        assert b"pepper" not in body
    found = seen(remote)
    assert all(name != b"card" for record in found for name, _ in record.pairs)
    # Another host without that policy does not double them.
    other = new_local()
    add(other, entries)
    assert shipper(other, remote).ship(now_ms=START_MS, force=True).found == 20


@pytest.mark.alike
def test_awkward_names_and_streams_called_dead(local: SqlStore, remote: Remote) -> None:
    refs = [StreamRef("q 1/ü%~*?", "s:é"), StreamRef("x" * 200, "y"), StreamRef("mail", "dead"), StreamRef.dead("mail")]
    for ref in refs:
        entries = settled(3) if ref.kind == "stream" else [entry("1-0", "job", "JOB0STBBIRAKHo")]
        add(local, entries, ref)
        done = shipper(local, remote, ref).ship(now_ms=START_MS, force=True)
        assert done.segments == 1
        assert all(len(part) < 255 for key in remote.list("") for part in key.split("/"))
    assert len(remote.list("log/")) == 4
    assert {key.split("/")[1] for key in remote.list("queue=mail/")} == {"stream=dead", "stream=%64ead"}


@pytest.mark.alike
def test_the_manifest_lists_the_committed_files_and_no_others(local: SqlStore, remote: Remote) -> None:
    add(local, settled(5))
    ship = shipper(local, remote)
    ship.ship(now_ms=START_MS, force=True)
    (manifest,) = remote.list("manifest/")
    (key,) = remote.list("queue=mail/")
    assert manifest == f"manifest/{key.rpartition('/')[0]}/files.txt"
    assert (remote.get(manifest) or b"").decode().split() == [remote.location(key)]
    add(local, settled(5, first=5))
    with pytest.raises(Killed):
        shipper(local, Cutting(remote, "put", "manifest/", "before")).ship(now_ms=START_MS, force=True)
    anew = shipper(local, remote)
    assert anew.due(START_MS)  # the list is behind: the next cycle mends it
    anew.ship(now_ms=START_MS)
    listed = (remote.get(manifest) or b"").decode().split()
    assert listed == sorted(remote.location(key) for key in remote.list("queue=mail/"))


def test_what_follows_the_last_possible_id(local: SqlStore, remote: Remote) -> None:
    assert next_id(TOP) is None
    assert shipper(local, remote).prove(None).bound is None
    assert shipper(local, remote).prove(FIRST_ID).bound == FIRST_ID

"""The cycle: what is read, shipped and trimmed; on a real server, SQLite and a directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from emq_archive.driver import BURST, Allowance
from emq_ops.protocol import ids
from emq_ops.protocol.server import Server, connect
from tests.archive.folding import READING, TOP, Host, held
from tests.support.proxy import RespProxy, anything
from tests.support.valkey import Valkey


@pytest.mark.alike
def test_everything_goes_where_it_belongs(host: Host) -> None:
    host.add(*(f"{i}-0" for i in range(1, 101)))
    report = host.anew(keep=10).cycle(force=True)
    assert (report.folded, report.shipped, report.trimmed, report.segments) == (100, 100, 90, 1)
    assert (report.bound, report.unshipped, report.lag_records, report.refused) == ("91-0", 0, 0, [])
    assert host.left() == [f"{i}-0" for i in range(91, 101)]
    assert host.archived() == host.rows() == host.sent
    again = host.driver.cycle(force=True)
    assert (again.folded, again.shipped, again.trimmed, again.segments) == (0, 0, 0, 0)
    host.add("101-0")
    once = host.driver.cycle(force=True)
    assert (once.folded, once.shipped, once.trimmed) == (1, 1, 1)
    assert host.archived() == host.sent


@pytest.mark.alike
def test_every_byte_survives(host: Host) -> None:
    host.put("1-1", "tag", "a", "tag", "b", "note", "x")
    host.put("1-2", b"\xff\x00name", b"\x80value", "", "", "empty", "")
    host.put("1-3", "id", "EVT0STBBIRAKHo", "job", "JOB0STBBIRAKHo", "attempts", "two")
    host.put("1-4", "id", "JOB0STBBIRAKHo")
    host.put("1-5", "id", "rubbish", "id", "EVT0STBBIRAKHo")
    host.put("1-6", "big", b"\xfe" * (1 << 20))
    host.put(f"2-{TOP}", "f", "v")
    host.put(f"{TOP}-{TOP}", "last", "one")
    report = host.anew(keep=0).cycle(force=True)
    assert report.folded == 8
    # No id follows the very last one, so it stays.
    assert host.left() == [f"{TOP}-{TOP}"]
    assert host.archived() == host.rows() == host.sent


def test_c01_trims_are_exact(valkey: Valkey, server: Server, host: Host) -> None:
    """C01: 250 entries in nodes of 100; 11 stay, first 240-0; 30,000 archived and gone in one trim."""
    server.write("CONFIG", "SET", "stream-node-max-entries", 100)
    host.add(*(f"{i}-0" for i in range(1, 240)))
    with held(valkey, host, READING, keep=0) as reports:
        host.add(*(f"{i}-0" for i in range(240, 251)))
    assert (reports[0].folded, reports[0].trimmed) == (239, 239)
    assert (len(host.left()), host.left()[0]) == (11, "240-0")
    report = host.anew(keep=0).cycle(force=True)
    assert (report.folded, host.left()) == (11, [])
    assert host.archived() == host.sent
    fill = "for i = 1000, 30999 do redis.call('XADD', KEYS[1], i .. '-0', 'f', 'v') end"
    server.write("EVAL", fill, 1, host.key)
    report = host.driver.cycle(force=True)
    assert (report.folded, report.trimmed, host.left()) == (30_000, 30_000, [])
    assert len(host.archived()) == 30_250


@pytest.mark.alike
def test_c06_groups_are_respected(host: Host) -> None:
    """C06: audit has read and acked all; billing read 4 and acked 2: floor 3-0."""
    host.add(*(f"{i}-0" for i in range(1, 11)))
    for group, read, acked in (("audit", 10, 10), ("billing", 4, 2)):
        host.server.write("XGROUP", "CREATE", host.key, group, "0")
        host.server.write("XREADGROUP", "GROUP", group, "c", "COUNT", read, "STREAMS", host.key, ">")
        host.server.write("XACK", host.key, group, *(f"{i}-0" for i in range(1, acked + 1)))
    report = host.anew(keep=0).cycle(force=True)
    assert (report.shipped, report.trimmed, report.bound, len(host.left())) == (10, 2, "3-0", 8)
    assert report.groups == [{"name": "billing", "pending": 2, "undelivered": 6, "needs": "3-0"}]
    assert host.anew(keep=0, groups="ignore").cycle(force=True).trimmed == 8


@pytest.mark.alike
def test_c10_at_the_memory_limit(host: Host) -> None:
    """C10: archived and trimmed; the watermark that can't be written is reported, and written later."""
    evt = ids.mint("EVT")
    host.add(*(f"{i}-0" for i in range(1, 100)))
    host.put(ids.parse(evt).stream_id, "id", evt)
    host.server.write("CONFIG", "SET", "maxmemory", 1_000_000)
    try:
        report = host.anew(keep=10).cycle(force=True)
    finally:
        host.server.write("CONFIG", "SET", "maxmemory", 0)
    assert (report.folded, report.trimmed, len(host.left())) == (100, 90, 10)
    assert any("watermark could not be written" in note for note in report.notes)
    assert host.server.read("GET", host.queue.keys.watermark("completions")) is None
    assert host.driver.cycle(force=True).watermark == evt
    assert host.server.read("GET", host.queue.keys.watermark("completions")) == evt.encode()


@pytest.mark.alike
def test_ages_by_stream_time(host: Host) -> None:
    now = host.server.now_ms("mail")
    old, young = [f"{now - 60_000 - i}-0" for i in (3, 2, 1)], [f"{now - 1000 + i}-0" for i in range(5)]
    host.add(*old, *young)
    report = host.anew(max_age_ms=60_000).cycle(force=True)
    assert (report.trimmed, host.left()) == (3, young)
    # With both, what either lets go goes.
    assert host.anew(max_age_ms=60_000, keep=2).cycle(force=True).trimmed == 3
    assert host.anew(max_age_ms=1, keep=100).cycle(force=True).trimmed == 2
    assert host.left() == []


@pytest.mark.alike
def test_keep_is_exact_whatever_was_deleted(host: Host) -> None:
    host.add(*(f"{i}-0" for i in range(1, 2001)))
    host.anew(keep=500).cycle(force=True)
    assert len(host.left()) == 500
    host.server.write("XDEL", host.key, "1990-0", "1700-0")
    assert host.driver.cycle(force=True).trimmed == 0
    host.add("2001-0", "2002-0", "2003-0", "2004-0")
    assert host.driver.cycle(force=True).trimmed == 2
    assert len(host.left()) == 500


@pytest.mark.alike
def test_without_a_policy_nothing_is_trimmed(host: Host) -> None:
    host.add("1-0", "2-0")
    report = host.driver.cycle(force=True)
    assert (report.shipped, report.trimmed, host.left()) == (2, 0, ["1-0", "2-0"])


def test_an_empty_stream_and_none(host: Host) -> None:
    assert host.anew(keep=0).cycle(force=True).as_row()["folded"] == 0
    host.add("1-0")
    host.server.write("XTRIM", host.key, "MAXLEN", "=", 0)
    assert host.driver.cycle(force=True).folded == 0


def test_trim_after_local(host: Host) -> None:
    host.add("1-0", "2-0", "3-0")
    report = host.anew(keep=1, trim_after="local").cycle()
    assert (report.folded, report.shipped, report.trimmed, report.unshipped) == (3, 0, 2, 3)
    assert host.rows() == host.sent


@pytest.mark.alike
def test_shipped_when_old_when_full_or_when_needed(host: Host) -> None:
    host.add("1-0", "2-0")
    assert host.anew().cycle().shipped == 0
    assert host.anew(keep=1).cycle().shipped == 2
    host.add("3-0")
    assert host.anew(ship_after_ms=0).cycle().shipped == 1
    host.add("4-0")
    assert host.anew(segment_bytes=1).cycle().shipped == 1


def test_not_more_than_max_removals_nor_beyond_a_plan(host: Host) -> None:
    host.add(*(f"{i}-0" for i in range(1, 21)))
    driver = host.anew(keep=5)
    report = driver.cycle(force=True, max_removals=14)
    assert (report.shipped, report.trimmed) == (20, 0)
    assert report.refused == ["not trimmed: 15 would go, more than max_removals 14"]
    assert driver.cycle(force=True, below=(11, 0), max_removals=14).trimmed == 10
    assert driver.cycle(force=True, max_removals=5).trimmed == 5


def test_an_idle_cycle_asks_next_to_nothing(valkey: Valkey, tmp_path: Path) -> None:
    with RespProxy(valkey.url) as proxy, connect(proxy.url) as server:
        server.write("FLUSHALL")
        host = Host.in_folder(server, tmp_path)
        host.add(*(f"{i}-0" for i in range(1, 51)))
        host.anew(keep=10).cycle(force=True)
        host.driver.cycle()
        proxy.forget()
        objects = set(tmp_path.rglob("*.*"))
        host.driver.cycle()
        assert proxy.count(anything) <= 3
        assert set(tmp_path.rglob("*.*")) == objects
        host.close()


def test_a_preview_changes_nothing(host: Host) -> None:
    host.add(*(f"{i}-0" for i in range(1, 21)))
    report = host.anew(keep=5).preview()
    assert (report.folded, report.shipped, report.trimmed) == (20, 20, 15)
    assert len(host.left()) == 20
    assert host.bucket.names("") == []


def test_an_allowance() -> None:
    allowance = Allowance(BURST, 60_000)
    assert sum(allowance.take(0) for _ in range(100)) == BURST
    assert [allowance.take(at) for at in (30_000, 60_000, 60_001, 600_000)] == [False, True, False, True]
    day = Allowance(BURST, 60_000)
    assert sum(day.take(at) for at in range(0, 86_400_000, 5_000)) <= 1_440 + BURST


@pytest.mark.alike
def test_shipped_rows_leave_the_local_database_when_the_policy_says_so(host: Host) -> None:
    host.anew(keep=3, local_keep_ms=0)
    host.add(*(f"{i}-0" for i in range(1, 11)))
    host.driver.cycle(force=True)
    host.driver.cycle(force=True)
    assert [seen.ms for seen in host.rows()] == list(range(1, 11))  # one row of the database holds them, and lives on
    host.add(*(f"{i}-0" for i in range(11, 21)))
    host.driver.cycle(force=True)
    host.driver.cycle(force=True)
    assert [seen.ms for seen in host.rows()] == list(range(11, 21))
    assert len(host.archived()) == 20
    host.anew()
    assert host.driver.cycle(force=True).folded == 0

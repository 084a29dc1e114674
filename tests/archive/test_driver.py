"""The cycle: what is read, shipped and trimmed; on a real server, SQLite and a directory."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from emq_archive.driver import BURST, Allowance, Driver
from emq_archive.errors import DeadlineError
from emq_archive.model import Writer
from emq_archive.reports import CycleReport
from emq_ops.protocol import ids
from emq_ops.protocol.deadline import deadline
from emq_ops.protocol.server import Server, connect
from tests.archive.conftest import LOCALS, REMOTES, database
from tests.archive.folding import STATE, Host
from tests.support.oracle import Bucket
from tests.support.proxy import Match, RespProxy, anything, named, scripted
from tests.support.s3 import CREDENTIALS, S3Server
from tests.support.valkey import Valkey

TOP = 18446744073709551615
READING = named("XRANGE")
TRIMMING = scripted("stream_trim")


@pytest.fixture(params=itertools.product(LOCALS, REMOTES), ids="-".join)
def pair(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Each pair of backends."""
    found: tuple[str, str] = request.param
    return found


@pytest.fixture
def host(
    pair: tuple[str, str],
    server: Server,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Host]:
    """A driver's host on each pair of backends."""
    local, remote = pair
    local_url = f"sqlite:///{tmp_path}/a.db" if local == "sqlite" else database(request)
    remote_url, bucket = f"file:{tmp_path}/bucket", Bucket.folder(tmp_path / "bucket")
    if remote == "s3":
        s3: S3Server = request.getfixturevalue("s3")
        for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL_S3": s3.url}.items():
            monkeypatch.setenv(name, value)
        name = s3.bucket()
        remote_url, bucket = f"s3://{name}/some/prefix", Bucket.s3(s3.client(), name, "some/prefix/")
    made = Host(server, local_url, remote_url, bucket)
    yield made
    made.close()
    if local != "sqlite":
        request.getfixturevalue("left").append(local_url)


@contextlib.contextmanager
def held(valkey: Valkey, host: Host, at: Match, **policy: Any) -> Iterator[list[CycleReport]]:
    """A forced cycle that stands still before its first request of that kind while the ``with`` runs; its report is in
    the list afterwards."""
    reports: list[CycleReport] = []
    with RespProxy(valkey.url) as proxy, connect(proxy.url) as server:
        host.queue.server, direct = server, host.queue.server
        try:
            driver = host.anew(**policy)
            fault = proxy.arm("hold", match=at)
            thread = threading.Thread(target=lambda: reports.append(driver.cycle(force=True)))
            thread.start()
            fault.wait()
            yield reports
            fault.release()
            thread.join(30)
        finally:
            host.queue.server = direct


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
def test_c05_the_bound_is_the_next_id(valkey: Valkey, host: Host) -> None:
    """C05: five of six committed; a sixth appended before the trim; a last id with the highest sequence."""
    host.add(*(f"100-{i}" for i in range(5)))
    with held(valkey, host, TRIMMING, keep=0) as reports:
        host.add("100-5")
    assert (reports[0].bound, reports[0].trimmed, host.left()) == ("100-5", 5, ["100-5"])
    host.add(f"100-{TOP}")
    report = host.anew(keep=0).cycle(force=True)
    assert (report.bound, report.trimmed, host.left()) == ("101-0", 2, [])
    assert host.archived() == host.sent


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


@pytest.mark.alike
def test_made_anew_with_lower_ids(host: Host) -> None:
    host.add(*(f"{i}-0" for i in range(100, 110)))
    host.anew(keep=2).cycle(force=True)
    host.server.write("DEL", host.key)
    host.add(*(f"{i}-0" for i in range(105, 108)), other="bytes")
    host.add(*(f"{i}-0" for i in range(108, 112)))
    report = host.driver.cycle(force=True)
    # 108-0 and 109-0 are there with the same bytes: they are the same records.
    assert (report.folded, report.known, report.reborn, report.trimmed) == (5, 2, 3, 5)
    assert "made anew" in report.notes[0]
    assert host.archived() == host.rows() == sorted(set(host.sent))
    # A fresh process on another host sees the same.
    assert host.anew(keep=2).cycle(force=True).folded == 0


def test_made_anew_between_reading_and_trimming(valkey: Valkey, host: Host) -> None:
    host.add(*(f"{i}-0" for i in range(1, 11)))
    with held(valkey, host, TRIMMING, keep=0) as reports:
        host.server.write("DEL", host.key)
        host.add(*(f"{i}-0" for i in range(1, 11)), other="bytes")
    assert (reports[0].trimmed, len(host.left())) == (0, 10)
    assert "made anew, or went back, since it was read" in reports[0].refused[0]
    assert reports[0].reborn == 10
    assert host.driver.cycle(force=True).trimmed == 10
    assert host.archived() == sorted(host.sent)


def test_deleted_between_reading_and_trimming(valkey: Valkey, host: Host) -> None:
    host.add("1-0", "2-0")
    with held(valkey, host, TRIMMING, keep=0) as reports:
        host.server.write("DEL", host.key)
    assert reports[0].refused == ["not trimmed: the stream was deleted since it was read"]


@pytest.mark.alike
def test_somebody_else_trims(valkey: Valkey, host: Host) -> None:
    host.add(*(f"{i}-0" for i in range(1, 21)))
    with held(valkey, host, TRIMMING, keep=5) as reports:
        host.server.write("XTRIM", host.key, "MINID", "=", "8-0")
    assert (reports[0].trimmed, len(host.left()), reports[0].refused) == (8, 5, [])
    assert "its head moved from 1-0 to 8-0" in reports[0].notes[0]


@pytest.mark.alike
def test_what_can_not_be_stored_stays_alone(host: Host) -> None:
    host.add("1-0", "2-0")
    host.put("3-0", "big", b"x" * 5000)
    host.add("4-0", "5-0")
    report = host.anew(keep=0, max_record_bytes=4096).cycle(force=True)
    assert (report.folded, report.trimmed, host.left()) == (4, 4, ["3-0"])
    assert [one["id"] for one in report.unstorable] == ["3-0"]
    host.add("6-0")
    assert host.driver.cycle(force=True).trimmed == 1
    report = host.anew(keep=0, max_record_bytes=1 << 20).cycle(force=True)
    assert (report.folded, report.unstorable, host.left()) == (1, [], [])
    assert host.archived() == host.sent


@pytest.mark.alike
def test_what_can_not_be_stored_stays_under_another_lease_too(host: Host) -> None:
    host.put("1-0", "big", b"x" * 5000)
    host.add("2-0", "3-0")
    first = host.anew(keep=100, max_record_bytes=4096)
    first.cycle(force=True)
    # The same reading goes on with another driver: it must know what was not stored.
    second = Driver(first.source, host.local, host.remote, replace(host.policy, keep=0), None, Writer(STATE, 7))
    report = second.cycle(force=True)
    assert (report.trimmed, host.left()) == (2, ["1-0"])
    second.lead(None, Writer(STATE, 8))
    host.add("4-0")
    assert second.cycle(force=True).trimmed == 1
    assert host.bucket.commits("mail", "completions")[-1]["token"] == 8


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


@pytest.mark.alike
def test_a_deadline_that_passed(host: Host) -> None:
    host.add("1-0", "2-0")
    with pytest.raises(DeadlineError), deadline(0):
        host.anew(keep=0).cycle()
    assert host.driver.cycle(force=True).trimmed == 2


def test_reading_leaves_time_to_ship_and_trim(valkey: Valkey, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.add(*(f"{i}-0" for i in range(1, 41)))
    with RespProxy(valkey.url) as proxy, connect(proxy.url) as server:
        host.queue.server, direct = server, host.queue.server
        # A second passes with each page that is read.
        monkeypatch.setattr(
            "emq_ops.protocol.deadline.time", SimpleNamespace(monotonic=lambda: float(proxy.count(READING)))
        )
        with deadline(20):
            report = host.anew(keep=0, page=1).cycle(force=True)
        monkeypatch.undo()
        host.queue.server = direct
    assert report.folded == report.shipped == report.trimmed == 12
    assert report.lag_records == 28
    assert report.lag_ms > 0
    assert "the time was up" in report.notes[0]
    assert host.driver.cycle(force=True).trimmed == 28
    assert host.archived() == host.sent


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

"""What happens to a stream while a cycle reads or trims it: made anew, deleted, trimmed by others."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from emq_archive.driver import Driver
from emq_archive.errors import DeadlineError
from emq_archive.model import Writer
from emq_ops.protocol.deadline import deadline
from emq_ops.protocol.server import connect
from tests.archive.folding import READING, STATE, TOP, TRIMMING, Host, held
from tests.support.proxy import RespProxy
from tests.support.valkey import Valkey


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

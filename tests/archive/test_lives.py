"""A stream's lives: made anew in ways that counters alone do not show, and what others took before it was read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from emq_archive.local import open_local
from emq_ops.protocol.server import Server
from tests.archive.folding import TRIMMING, Host, held
from tests.support.valkey import Valkey


@pytest.fixture
def host(server: Server, tmp_path: Path) -> Iterator[Host]:
    made = Host.in_folder(server, tmp_path)
    yield made
    made.close()


ANEW = [
    pytest.param(["3-0", "4-0", "5-0", *(f"{i}-1" for i in range(5, 13))], id="another first entry"),
    pytest.param(["1-0", "2-5", *(f"{i}-1" for i in range(5, 13))], id="the same first entry"),
]


@pytest.mark.parametrize("again", ANEW)
def test_made_anew_with_more_entries_and_higher_ids(host: Host, again: list[str]) -> None:
    """Nothing that only rises fell; but what stands there can't be what was left of the earlier stream."""
    host.add(*(f"{i}-0" for i in range(1, 6)))
    host.anew(keep=100).cycle(force=True)
    host.server.write("DEL", host.key)
    host.add(*again)
    report = host.driver.cycle(force=True)
    assert any("made anew" in note for note in report.notes)
    assert host.archived() == sorted(set(host.sent))
    host.add("20-0")
    report = host.driver.cycle(force=True)
    assert (report.notes, report.folded) == ([], 1)
    host.driver.policy = replace(host.policy, keep=0)
    assert host.driver.cycle(force=True).trimmed == len(again) + 1
    assert host.archived() == sorted(set(host.sent))


def test_made_anew_with_more_and_higher_between_reading_and_trimming(valkey: Valkey, host: Host) -> None:
    host.add(*(f"{i}-0" for i in range(1, 11)))
    with held(valkey, host, TRIMMING, keep=0) as reports:
        host.server.write("DEL", host.key)
        host.add(*(f"{i}-0" for i in range(5, 31)), other="bytes")
    assert (reports[0].trimmed, len(host.left())) == (0, 26)
    assert "made anew, or went back, since it was read" in reports[0].refused[0]
    assert host.driver.cycle(force=True).trimmed == 26
    assert host.archived() == sorted(host.sent)


def test_what_others_took_between_two_processes_is_told(host: Host) -> None:
    """As between two commands: the later one knows how far the earlier one read, and what was added since."""
    told = "records were taken out of the stream by others before this host read them"
    host.add(*(f"{i}-0" for i in range(1, 11)))
    assert host.anew(keep=5).cycle(force=True).notes == []
    assert host.anew().cycle(force=True).notes == []
    sent = list(host.sent)
    host.add(*(f"{i}-0" for i in range(11, 111)))
    host.server.write("XTRIM", host.key, "MAXLEN", "=", 10)
    assert host.anew().cycle(force=True).notes == [f"90 {told}"]
    assert host.archived() == [*sent, *host.sent[-10:]]
    assert host.anew().cycle(force=True).notes == []
    host.server.write("DEL", host.key)
    host.add("200-0")
    assert [note for note in host.anew().cycle(force=True).notes if told in note] == []


def test_what_we_trimmed_ourselves_is_not_told_as_taken_by_others(host: Host, tmp_path: Path) -> None:
    """The local database was put back from an earlier day; the log knows better."""
    host.add(*(f"{i}-0" for i in range(1, 11)))
    host.anew(keep=5).cycle(force=True)
    host.local.close()
    old = tmp_path / "a.db"
    backup = old.read_bytes()
    host.local = open_local(host.local_url)
    host.add(*(f"{i}-0" for i in range(11, 111)))
    assert host.anew(keep=5).cycle(force=True).trimmed == 100
    host.local.close()
    for path in tmp_path.glob("a.db*"):
        path.unlink()
    old.write_bytes(backup)
    host.local = open_local(host.local_url)
    assert host.anew(keep=5).cycle(force=True).notes == []
    assert host.archived() == host.sent


def test_the_same_ids_with_other_bytes_are_told(host: Host) -> None:
    host.add("1-0", "2-0")
    host.anew().cycle(force=True)
    host.server.write("DEL", host.key)
    host.add("1-0", "2-0", other="bytes")
    report = host.anew().cycle(force=True)
    assert (report.reborn, len(report.notes)) == (2, 1)
    assert "made anew" in report.notes[0]


def test_a_trim_past_what_a_group_needs_is_told(host: Host) -> None:
    host.add("1-0", "2-0")
    host.server.write("XGROUP", "CREATE", host.key, "billing", "0")
    report = host.anew(keep=0, groups="ignore").cycle(force=True)
    assert (report.trimmed, report.notes) == (2, ["trimmed past what consumer groups still need: billing"])

"""Odd streams: what others do to a stream that is archived, ids at the ends of their range, values of every size."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from emq_archive.live import PAGE_BYTES
from emq_archive.local import open_local
from emq_archive.remote import open_remote
from emq_archive.upkeep.restore import restore
from emq_ops.passes.archive.status import status_of
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.server import Server
from tests.archive.folding import Host
from tests.archive.making import DAY_MS, START_MS
from tests.support.oracle import Bucket
from tests.support.s3 import CREDENTIALS, S3Server

TOP = (1 << 64) - 1


@pytest.fixture
def host(server: Server, tmp_path: Path) -> Iterator[Host]:
    made = Host.in_folder(server, tmp_path)
    yield made
    made.close()


def test_the_ends_of_the_range_of_ids(host: Host) -> None:
    """First and last sequence of a millisecond, the lowest id of all and the highest."""
    ids = ["0-1", f"0-{TOP}", "1-0", f"7-{TOP}", "8-0", f"{TOP - 1}-{TOP}", f"{TOP}-{TOP}"]
    host.add(*ids)
    for keep, left in ((5, ids[2:]), (2, ids[5:]), (1, ids[6:])):
        report = host.anew(keep=keep).cycle(force=True)
        assert host.left() == left, report
        assert host.archived() == host.sent
        assert report.lag_records == 0
    # The very last id has no next one: that entry stays, whatever the policy says.
    assert host.anew(keep=0).cycle(force=True).refused == []
    assert host.left() == ids[6:]


@pytest.mark.parametrize("gone", [["5-0"], ["4-0", "5-0"], ["1-0", "3-0", "5-0"], ["1-0", "2-0", "3-0", "4-0", "5-0"]])
def test_entries_deleted_by_name_before_they_were_read_are_no_lag(host: Host, gone: list[str]) -> None:
    host.add("1-0", "2-0", "3-0", "4-0", "5-0")
    host.server.write("XDEL", host.key, *gone)
    for _ in range(2):
        report = host.driver.cycle(force=True)
        assert (report.lag_records, report.lag_ms, report.notes) == (0, 0, [])
    assert host.anew().preview().folded == 0
    row = status_of(host.server, host.local, host.driver.source.ref)
    assert (row["lag_records"], row["lag_seconds"]) == (0, 0.0)
    host.add("6-0")
    assert host.driver.cycle(force=True).folded == 1
    host.add("7-0", "8-0")
    host.server.write("XDEL", host.key, "8-0")
    report = host.driver.cycle(force=True)
    assert (report.folded, report.lag_records) == (1, 0)
    assert report.notes == ["1 records were taken out of the stream by others before this host read them"]
    assert host.driver.cycle(force=True).notes == []
    host.sent.pop()
    assert [seen.ms for seen in host.archived()] == [i for i in range(1, 8) if f"{i}-0" not in gone]


@pytest.mark.parametrize("more", [[], ["ENTRIESADDED", "1000", "MAXDELETEDID", "90-0"]])
def test_a_last_id_that_was_set_by_hand(host: Host, more: list[str]) -> None:
    host.add("1-0", "2-0", "3-0")
    host.anew(keep=2).cycle(force=True)
    host.server.write("XSETID", host.key, "100-0", *more)
    report = host.driver.cycle(force=True)
    assert (report.lag_records, report.refused, host.left()) == (0, [], ["2-0", "3-0"])
    assert host.driver.cycle(force=True).notes == []
    host.add("100-1", "101-0")
    report = host.driver.cycle(force=True)
    assert (report.folded, report.trimmed, host.left()) == (2, 2, ["100-1", "101-0"])
    # Taken back as far as that goes: another life as it seems, read from its head, and nothing twice.
    host.server.write("XSETID", host.key, "101-0", "ENTRIESADDED", "2", "MAXDELETEDID", "0-0")
    host.driver.cycle(force=True)
    host.add("102-0")
    host.driver.cycle(force=True)
    assert host.left() == ["101-0", "102-0"]
    assert host.archived() == host.sent


def test_a_pending_entry_that_was_deleted_holds_nothing_up(host: Host) -> None:
    host.add(*(f"{i}-0" for i in range(1, 11)))
    host.server.write("XGROUP", "CREATE", host.key, "audit", "0")
    host.server.write("XREADGROUP", "GROUP", "audit", "one", "COUNT", 6, "STREAMS", host.key, ">")
    host.server.write("XACK", host.key, "audit", "1-0", "2-0")
    host.server.write("XDEL", host.key, "3-0", "4-0")
    report = host.anew(keep=0).cycle(force=True)
    assert host.left()[0] == "5-0"
    assert report.groups[0]["needs"] == "5-0"
    host.server.write("XDEL", host.key, "5-0", "6-0")
    host.driver.cycle(force=True)
    assert host.left()[0] == "7-0"


def test_more_deleted_pending_entries_than_one_look_takes(host: Host) -> None:
    count = 3000
    for at in range(1, count + 1):
        host.add(f"{at}-0")
    host.server.write("XGROUP", "CREATE", host.key, "audit", "0")
    host.server.write("XREADGROUP", "GROUP", "audit", "one", "COUNT", count, "STREAMS", host.key, ">")
    host.server.write("XDEL", host.key, *(f"{at}-0" for at in range(2, count - 1)))
    host.server.write("XACK", host.key, "audit", "1-0")
    for _ in range(4):
        host.anew(keep=0).cycle(force=True)
    assert host.left() == [f"{count - 1}-0", f"{count}-0"]


@pytest.mark.parametrize(("start", "left"), [("0", 4), ("$", 0), ("2-0", 2)])
def test_a_group_that_is_made_half_way(host: Host, start: str, left: int) -> None:
    """At 0 it needs all that is there, at $ nothing of it; a deleted consumer takes its pending entries along."""
    host.add("1-0", "2-0", "3-0", "4-0")
    host.anew(keep=100).cycle(force=True)
    host.server.write("XGROUP", "CREATE", host.key, "late", start)
    host.anew(keep=0).cycle(force=True)
    assert len(host.left()) == left
    host.add("5-0")
    host.driver.cycle(force=True)
    assert "5-0" in host.left()  # not delivered to it yet
    host.server.write("XREADGROUP", "GROUP", "late", "one", "STREAMS", host.key, ">")
    assert len(host.left()) == left + 1
    host.driver.cycle(force=True)
    assert len(host.left()) == left + 1
    host.server.write("XGROUP", "DELCONSUMER", host.key, "late", "one")
    host.driver.cycle(force=True)
    assert host.left() == []
    assert host.archived() == host.sent


def test_an_empty_stream_with_a_group(host: Host) -> None:
    host.server.write("XGROUP", "CREATE", host.key, "g", "$", "MKSTREAM")
    assert host.anew(keep=0).cycle(force=True).refused == []
    host.add("1-0")
    host.driver.cycle(force=True)
    assert host.left() == ["1-0"]
    host.server.write("XGROUP", "DESTROY", host.key, "g")
    host.driver.cycle(force=True)
    assert host.left() == []


def test_values_of_every_size(host: Host) -> None:
    """10 MB values, empty names and values, bytes that are no text, a name five times, no EVT id, a wrong one."""
    big = bytes(range(256)) * 40_000
    host.put("1-0", "", "")
    host.put("2-0", b"\xff\x00name", big, b"\xff\x00name", b"")
    host.put("3-0", *["tag", "a"] * 5)
    host.put("4-0", "id", "EVTshort", "job", b"\xfe", "attempts", "x" * 40)
    host.put("5-0", "id", "JOB0STBBIRAKHo", "job", "JOB0STBBIRAKHo", "attempts", str(1 << 70))
    host.put("6-0", *(x for i in range(2000) for x in (f"n{i}", "")))
    for at in range(7, 9):
        host.put(f"{at}-0", "v", big)
    report = host.anew(keep=0).cycle(force=True)
    assert (report.folded, report.trimmed, report.unstorable) == (8, 8, [])
    assert host.archived() == host.rows() == host.sent


def test_a_stream_of_large_entries_is_not_asked_for_at_once(host: Host) -> None:
    """How large they are is not known before the first page: it is a small one."""
    asked: list[int] = []
    for at in range(1, 40):
        host.put(f"{at}-0", "v", b"x" * 1_000_000)
    source = host.anew().source
    source.observe(None)
    for page in source._pages(1000, lambda: False):
        asked.append(sum(len(entry[1][1]) for entry in page))
        source._page.fit(page)
    assert max(asked) <= PAGE_BYTES
    assert sum(asked) == 39_000_000


def test_midnight_within_a_page(host: Host) -> None:
    day = START_MS // DAY_MS * DAY_MS + DAY_MS
    host.add(f"{day - 1}-{TOP}", f"{day}-0", f"{day}-{TOP}", f"{day + DAY_MS - 1}-5", f"{day + DAY_MS}-0")
    host.anew(keep=0).cycle(force=True)
    segments = host.bucket.segments("mail", "completions")
    assert [(s["first"], s["last"], s["records"]) for s in segments] == [
        (f"{day - 1}-{TOP}", f"{day - 1}-{TOP}", 1),
        (f"{day}-0", f"{day + DAY_MS - 1}-5", 3),
        (f"{day + DAY_MS}-0", f"{day + DAY_MS}-0", 1),
    ]
    assert host.left() == []


def test_keep_and_age_together_let_go_what_either_lets_go(host: Host) -> None:
    now = host.server.now_ms("mail")
    old, young = [f"{now - 7_200_000 + i}-0" for i in range(6)], [f"{now - 60_000 + i}-0" for i in range(4)]
    host.add(*old, *young)
    host.anew(keep=8, max_age_ms=3_600_000).cycle(force=True)
    assert host.left() == young
    host.anew(keep=2, max_age_ms=3_600_000).cycle(force=True)
    assert host.left() == young[-2:]
    host.anew(keep=0, max_age_ms=3_600_000).cycle(force=True)
    assert host.left() == []


@pytest.mark.parametrize("name", ["a stream", "a/b", "..", "%41", "ü€", "x" * 200, "dead", "con:dots", "*[?"])
def test_streams_of_any_name(server: Server, tmp_path: Path, name: str) -> None:
    host = Host.in_folder(server, tmp_path, stream=name)
    host.add("1-0", "2-0")
    host.anew(keep=1).cycle(force=True)
    assert host.left() == ["2-0"]
    with open_local(f"sqlite:///{tmp_path}/b.db") as other:
        assert restore(other, host.remote, host.driver.source.ref, now_ms=1).records == 2
    assert all(path.resolve().is_relative_to(tmp_path / "bucket") for path in (tmp_path / "bucket").rglob("*"))
    host.close()


ODD = ["some prefix/a+b/a%25b", "ü€/x=1&y='2'/tilde~/dot.", "a%23b%3Fc"]


@pytest.mark.parametrize("prefix", ODD)
def test_a_prefix_of_odd_characters(
    prefix: str, server: Server, tmp_path: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.url)
    bucket = s3.bucket()
    plain = unquote(prefix) + "/"
    seen = Bucket.s3(s3.client(), bucket, plain)
    host = Host(server, f"sqlite:///{tmp_path}/a.db", f"s3://{bucket}/{prefix}", seen)
    host.add("1-0", "2-0")
    host.anew(keep=1).cycle(force=True)
    assert host.archived() == host.sent
    keys = [o["Key"] for o in s3.client().list_objects_v2(Bucket=bucket)["Contents"]]
    assert all(key.startswith(plain) for key in keys)
    assert host.remote.list("log/")
    host.close()


@pytest.mark.parametrize("url", ["file:some#where", "file:some?where", "s3://bucket/pre#fix"])
def test_what_a_url_would_drop_is_refused(url: str) -> None:
    with pytest.raises(BadInputError, match="%"):
        open_remote(url)


def test_what_an_older_local_database_does_not_know_was_not_taken_by_others(server: Server, tmp_path: Path) -> None:
    """A backup of archive.db is put back: what was trimmed since is in the remote."""
    host = Host.in_folder(server, tmp_path)
    host.add(*(f"{i}-0" for i in range(1, 11)))
    host.anew(keep=0).cycle(force=True)
    host.close()
    shutil.copy(tmp_path / "a.db", tmp_path / "backup.db")
    host = Host.in_folder(server, tmp_path)
    host.add(*(f"{i}-0" for i in range(11, 31)))
    host.anew(keep=0).cycle(force=True)
    host.close()
    for file in tmp_path.glob("a.db*"):
        file.unlink()
    shutil.copy(tmp_path / "backup.db", tmp_path / "a.db")
    host = Host.in_folder(server, tmp_path)
    host.add("31-0")
    report = host.anew(keep=0).cycle(force=True)
    assert [note for note in report.notes if "taken out" in note] == []
    assert (report.folded, host.left()) == (1, [])
    host.close()

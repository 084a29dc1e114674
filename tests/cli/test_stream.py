"""``emq-ops stream`` and ``emq-ops events``: what stands in streams, what comes, and what may have been missed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from emq_ops.cli.main import main
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import groups, streams
from emq_ops.protocol.transitions.groups import Member
from tests.support.cli import emq
from tests.support.proxy import RespProxy
from tests.support.valkey import Valkey
from tests.support.waiting import first_true

TOOL = Path(sys.executable).with_name("emq-ops")


@pytest.fixture
def q(server: Server, valkey: Valkey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Queue:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EMQ_URL", valkey.url)
    return Queue(server, "orders")


def test_append_read_and_tail(q: Queue, tmp_path: Path) -> None:
    first = emq("stream", "append", "orders", "audit", "who=ada", "what=a=b").out.strip()
    (tmp_path / "more.jsonl").write_text('{"who": "bob"}\n\n{"who": "eve\\u001b[31m"}\n')
    told = emq("stream", "append", "orders", "audit", "--file", "more.jsonl", "--output", "json").json
    assert told["refused"] == []
    rows = emq("stream", "read", "orders", "audit", "--output", "json").json
    assert [row["evt"] for row in rows] == [first, *told["written"]]
    assert rows[0]["fields"] == [["who", "ada"], ["what", "a=b"]]
    [middle] = emq(
        "stream", "read", "orders", "audit", "--from", told["written"][0], "--limit", "1", "--output", "json"
    ).json
    assert middle["fields"] == [["who", "bob"]]
    assert emq("stream", "read", "orders", "audit", "--since", "1h").out.count("EVT") == 3
    last = emq("stream", "tail", "orders", "audit", "-n", "1").out
    assert (last.count("\n"), "\x1b" in last, "who=eve" in last) == (1, False, True)


def test_what_is_no_record_is_named_and_nothing_is_written(q: Queue, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"who": "bob"}\n{"who": 7}\n')
    for argv, text in {
        ("--file", "bad.jsonl"): "bad.jsonl:2: is no record",
        ("who",): "'who' is no field",
        (): "no record",
    }.items():
        ran = emq("stream", "append", "orders", "audit", "--new", *argv)
        assert (ran.code, text in ran.err) == (4, True), ran.err
    assert streams.length(q, "audit") == 0


def test_records_that_can_not_follow_are_told_one_by_one(q: Queue) -> None:
    q.server.write("XADD", q.keys.stream("audit"), "9999999999999-0", "a", "b")
    ran = emq("stream", "append", "orders", "audit", "who=ada")
    assert ran.code == 1
    assert "record 1 was not written: " in ran.err
    assert "1 of 1 records were not written" in ran.err


def test_streams_and_their_groups(q: Queue) -> None:
    events = streams.append_many(q, "audit", [[("n", str(n))] for n in range(3)])
    streams.put_archived(q, "audit", events[0])
    groups.create(q, "audit", "billing", "0")
    groups.fresh(q, Member("audit", "billing", "w"), 2)
    q.server.write("SET", q.keys.stream("odd"), "x")
    rows = {row["stream"]: row for row in emq("stream", "ls", "orders", "--output", "json").json}
    assert {name: (row["entries"], row["groups"], row["pending"]) for name, row in rows.items()} == {
        "audit": (3, 1, 2),
        "odd": (0, 0, 0),
    }
    assert "EMQDATA" in rows["odd"]["error"]
    [group] = emq("stream", "groups", "orders", "audit", "--output", "json").json
    assert (group["group"], group["pending"], group["lag"]) == ("billing", 2, 1)
    shown = emq("stream", "show", "orders", "audit").out
    assert "billing: 2 pending, idle for" in shown
    missing = emq("stream", "show", "orders", "audti")
    assert (missing.code, "did you mean audit?" in missing.err) == (4, True)


def test_tail_follows(q: Queue) -> None:
    before = streams.append(q, "audit", [("n", "0")])
    line = [str(TOOL), "stream", "tail", "orders", "audit", "-f", "--output", "jsonl"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["evt"] == before
        after = streams.append_many(q, "audit", [[("n", "1")], [("n", "2")]])
        assert [json.loads(process.stdout.readline())["evt"] for _ in after] == after
        process.send_signal(2)
        assert process.wait(20) == 0


def test_events_are_followed_and_what_may_be_missed_is_told(q: Queue, valkey: Valkey) -> None:
    streams.append(q, "audit", [("n", "0")])
    with RespProxy(valkey.url) as proxy:
        line = [str(TOOL), "--url", proxy.url, "events", "orders", "-n", "3"]
        with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert "following; what was published before is not kept" in process.stderr.readline()
            q.server.write("PUBLISH", q.keys.events, '{"event":"progress","job":"J","progress":"50"}')
            assert "  progress  J  progress=50\n" in process.stdout.readline()
            q.server.write("PUBLISH", q.keys.events, b"no\x1bjson")
            assert "\x1b" not in process.stdout.readline()
            proxy.cut_all()
            assert "may have been missed" in process.stderr.readline()
            first_true(
                lambda: q.server.write("PUBLISH", q.keys.events, '{"event":"completed","job":"K"}'), 20, lambda: "heard"
            )
            assert "  completed  K\n" in process.stdout.readline()
            assert "3 events; some may have been missed 1 time" in process.stderr.read()
            assert process.wait(20) == 0


def test_a_channel_can_not_be_listed(q: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    streams.append(q, "audit", [("n", "0")])
    assert main(["events", "orders"]) == 4
    assert "-f follows it; emq-ops stream read orders completions" in capsys.readouterr().err

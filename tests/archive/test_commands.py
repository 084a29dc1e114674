"""The archive's commands as a user types them: without a config file, and what they print."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from emq_ops.cli.archive_read import point, ref_of
from emq_ops.protocol import ids
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.ids import MAX_STREAM_PART
from emq_ops.protocol.server import Server
from tests.archive.conftest import Run
from tests.archive.making import START_MS, job_of, settled
from tests.support.valkey import Valkey

KEY = "emq:{q}:stream:completions"


@pytest.fixture(autouse=True)
def records(server: Server) -> None:
    """60 records and one that is no text."""
    for one in settled(60):
        server.write("XADD", KEY, one[0], *one[1])
    server.write("XADD", KEY, "1999000000000-0", b"\xff", b"\xfe", "a", "")


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def test_fold_then_read_without_a_config_file(run: Run) -> None:
    code, out, _ = run("archive", "fold", "q", "completions", "--keep", "10", "--output", "json")
    told = json.loads(out)
    assert (code, told["folded"], told["shipped"], told["trimmed"]) == (0, 61, 61, 51)
    assert told["watermark"] == settled(60)[-1][1][1].decode()
    code, out, _ = run("archive", "read", "q", "completions", "--output", "jsonl")
    found = lines(out)
    assert (code, len(found)) == (0, 61)
    first = settled(1)[0]
    flat = [text.decode() for text in first[1]]
    assert found[0] == {
        "stream_id": first[0].decode(),
        "evt": flat[1],
        "fields": [list(pair) for pair in zip(flat[::2], flat[1::2], strict=True)],
    }
    assert found[-1]["evt"] is None
    assert found[-1]["fields"] == [[{"base64": "/w=="}, {"base64": "/g=="}], ["a", ""]]


def test_read_selects(run: Run) -> None:
    run("archive", "fold", "q")
    entries = settled(60)
    ids = [e[0].decode() for e in entries]

    def found(*argv: str, **more: Any) -> list[str]:
        return [
            row["stream_id"]
            for row in lines(run("archive", "read", "q", "completions", *argv, "--output", "jsonl", **more)[1])
        ]

    assert found("--from", ids[5], "--to", ids[7]) == ids[5:8]
    assert found("--to", str(START_MS + 1)) == ids[:2]
    assert found("--job", job_of(entries[9])) == [ids[9]]
    assert found("--limit", "3") == ids[:3]
    assert found("--from", "2024-11-30", "--to", "2024-12-01") == ids
    assert found(url=None) == [*ids, "1999000000000-0"]  # no server is named, so none is started
    assert found(url=None, local="sqlite:///new.db") == [*ids, "1999000000000-0"]


def test_query_prints_rows(run: Run) -> None:
    run("archive", "fold", "q")
    code, out, _ = run(
        "archive", "query", "q", "completions", "SELECT outcome, count(*) AS n FROM records GROUP BY 1 ORDER BY 2"
    )
    assert code == 0
    assert "completed" in out
    code, out, _ = run("archive", "query", "q", "completions", "SELECT min(ms) AS m FROM records", "--output", "json")
    assert json.loads(out) == [{"m": START_MS}]
    code, _, err = run("archive", "query", "q", "completions", "SELEC 1")
    assert (code, err.count("\n")) == (4, 1)


def test_verify_names_what_is_damaged_and_the_next_fold_trims_nothing(run: Run, server: Server) -> None:
    run("archive", "fold", "q", "completions", "--keep", "40")
    assert run("archive", "verify", "q")[0] == 0
    segment = next(p for p in sorted(Path("dir").rglob("*.parquet")))
    body = segment.read_bytes()
    segment.write_bytes(body[:-1] + bytes([body[-1] ^ 1]))
    code, _, err = run("archive", "verify", "q")
    assert code == 1
    assert segment.name in err
    code, _, err = run("archive", "fold", "q", "completions", "--keep", "10")
    assert code == 1
    assert "nothing is trimmed" in err
    assert server.read("XLEN", "emq:{q}:stream:completions") == 40
    segment.write_bytes(body)
    assert run("archive", "verify", "q")[0] == 0
    assert run("archive", "fold", "q", "completions", "--keep", "10")[0] == 0
    assert server.read("XLEN", "emq:{q}:stream:completions") == 10


def test_what_a_stranger_wrote_into_the_log_makes_no_line_of_ours(run: Run) -> None:
    run("archive", "fold", "q", "completions", "--keep", "40")
    commit = max(Path("dir").rglob("log/q/completions/*.json"))
    told = json.loads(commit.read_text())
    told["add"][0]["key"] = "queue=q/x\nemq-ops: all is well\x1b[31m"
    commit.write_text(json.dumps(told))
    for verb in ("verify", "restore"):
        code, _, err = run("archive", verb, "q", local="sqlite:///other.db")
        assert (code, "\\nemq-ops: all is well\\x1b[31m" in err, "\nemq-ops: all is well" in err) == (1, True, False)


def test_a_lost_local_database_is_restored_and_the_fold_goes_on(run: Run) -> None:
    run("archive", "fold", "q", "completions", "--keep", "10")
    before = run("archive", "read", "q", "--output", "jsonl")[1]
    code, out, _ = run("archive", "restore", "q", "--output", "json", local="sqlite:///new.db")
    assert (code, json.loads(out)["records"]) == (0, 61)
    assert run("archive", "read", "q", "--output", "jsonl", local="sqlite:///new.db")[1] == before
    take_over(run, "sqlite:///new.db")
    code, out, _ = run(
        "archive", "fold", "q", "completions", "--keep", "5", "--output", "json", local="sqlite:///new.db"
    )
    assert (code, json.loads(out)["folded"], json.loads(out)["trimmed"]) == (0, 0, 5)


def take_over(run: Run, local: str) -> None:
    """The database at `local`, which is the state too, comes in the place of the one that is lost."""
    state = re.search(r"take-over ([0-9a-f-]{36})", run("archive", "fold", "q", local=local)[2])
    assert state is not None
    code, _, err = run("state", "take-over", state[1], "--yes", local=local)
    assert code == 0, err


@pytest.mark.parametrize("how", ["gone", "flipped"])
def test_what_the_remote_lost_is_shipped_again_from_here(run: Run, how: str) -> None:
    run("archive", "fold", "q", "completions", "--keep", "10")
    segment = next(p for p in sorted(Path("dir").rglob("*.parquet")))
    body = segment.read_bytes()
    segment.write_bytes(bytes([body[0] ^ 1]) + body[1:]) if how == "flipped" else segment.unlink()
    assert run("archive", "verify", "q")[0] == 1
    deep = ["--deep"] if how == "flipped" else []
    code, out, _ = run("archive", "reship", "q", *deep, "--output", "json")
    assert (code, json.loads(out)["segments"], json.loads(out)["left"]) == (0, 1, [])
    code, out, _ = run("archive", "verify", "q", "--output", "json")
    assert code == 0
    head = json.loads(out)["head"]
    assert run("archive", "verify", "q", "--expect-head", head)[0] == 0
    assert run("archive", "verify", "q", "--expect-head", "0" * 64)[0] == 1


def test_a_segment_that_is_lost_for_good(run: Run, server: Server) -> None:
    run("archive", "fold", "q", "completions", "--keep", "10")
    segment = sorted(Path("dir").rglob("*.parquet"))[0]
    segment.unlink()
    key = segment.relative_to("dir").as_posix()
    code, out, err = run("archive", "read", "q", "--no-live", "--output", "jsonl", local="sqlite:///new.db")
    assert (code, len(lines(out)), key in err) == (1, 1, True)
    code, out, err = run("archive", "query", "q", "completions", "SELECT job FROM records", local="sqlite:///new.db")
    assert (code, key in err) == (1, True)
    code, out, err = run("archive", "restore", "q", "--output", "json", local="sqlite:///new.db")
    assert (code, json.loads(out)["records"], key in err) == (1, 1, True)
    take_over(run, "sqlite:///new.db")
    code, _, err = run("archive", "reship", "q", local="sqlite:///new.db")
    assert (code, "accept-loss" in err) == (1, True)
    code, out, _ = run("archive", "accept-loss", "q", "completions", key, "--yes", local="sqlite:///new.db")
    assert code == 0
    assert run("archive", "verify", "q", local="sqlite:///new.db")[0] == 0
    assert run("archive", "fold", "q", "completions", "--keep", "5", local="sqlite:///new.db")[0] == 0
    assert server.read("XLEN", KEY) == 5


def test_a_signed_archive(run: Run, valkey: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key of the YAML; another one, or none where nothing is known of the log, is not believed."""
    archive = "archive: {local: 'sqlite:///a.db', remote: {url: 'file:dir'}, sign: '${KEY}'}"
    Path("c.yaml").write_text(f"server: {{url: '{valkey.url}'}}\n{archive}\nqueues: {{q: {{}}}}\n")
    monkeypatch.setenv("KEY", "k1")
    argv = ("-c", "c.yaml", "archive")
    assert run(*argv, "fold", "q", "completions", "--keep", "10", url=None, archive=False)[0] == 0
    assert run(*argv, "verify", "q", url=None, archive=False)[0] == 0
    monkeypatch.setenv("KEY", "k2")
    code, _, err = run(*argv, "verify", "q", url=None, archive=False)
    assert (code, "signed with another key" in err, "k1" in err) == (1, True, False)


def test_upkeep_asks_before_it_destroys(run: Run) -> None:
    run("archive", "fold", "q")
    victim = job_of(settled(1)[0])
    assert run("archive", "erase", "q", "completions", "--job", victim)[0] == 4  # nobody to ask
    assert (
        json.loads(run("archive", "erase", "q", "completions", "--job", victim, "--dry-run", "--output", "json")[1])[
            "records"
        ]
        == 1
    )
    assert len(lines(run("archive", "read", "q", "--output", "jsonl")[1])) == 61
    code, out, _ = run("archive", "erase", "q", "completions", "--job", victim, "--yes", "--output", "json")
    assert (code, json.loads(out)["records"]) == (0, 1)
    assert len(lines(run("archive", "read", "q", "--output", "jsonl")[1])) == 60
    assert run("archive", "expire", "q")[0] == 4  # no policy says so
    code, out, _ = run("archive", "expire", "q", "--older-than", "1d", "--dry-run", "--output", "json")
    assert (code, json.loads(out)["dry_run"]) == (0, True)
    assert run("archive", "compact", "q")[0] == 0
    assert run("archive", "verify", "q")[0] == 0


def test_adopt_begins_behind_the_watermark(run: Run, server: Server) -> None:
    """Until then a fold leaves the other archiver's watermark, and the stream, as they are; our own is not adopted."""
    theirs, key = settled(30)[-1][1][1], "emq:{q}:stream:completions:archived"
    server.write("SET", key, theirs)
    for more in ([], ["--dry-run"]):
        code, _, err = run("archive", "fold", "q", "completions", "--keep", "10", *more)
        assert (code, "`emq-ops archive adopt q completions`" in err) == (1, True)
    assert (server.read("GET", key), server.read("XLEN", "emq:{q}:stream:completions")) == (theirs, 61)
    code, out, _ = run("archive", "adopt", "q", "--yes", "--output", "json")
    assert (code, json.loads(out)["after"]) == (0, settled(30)[-1][0].decode())
    code, out, _ = run("archive", "fold", "q", "completions", "--keep", "10", "--output", "json")
    told = json.loads(out)
    assert (told["folded"], told["known"], told["trimmed"]) == (31, 30, 51)
    for more in ([], ["--after", "1-1"]):
        code, _, err = run("archive", "adopt", "q", "--yes", *more)
        assert (code, "this archive's own" in err) == (4, True)


def test_another_archiver_beside_ours_is_noticed(run: Run, server: Server) -> None:
    """Whatever it caches, lower or higher than ours; a watermark of before there were marks is ours by the log."""
    key, marks = "emq:{q}:stream:completions:archived", "emq-ops:{q}:marks"
    assert run("archive", "fold", "q", "completions")[0] == 0
    server.write("DEL", marks)
    assert run("archive", "adopt", "q", "--yes")[0] == 4
    assert run("archive", "fold", "q", "completions")[0] == 0
    assert server.read("HGET", marks, "completions") == server.read("GET", key)
    for theirs in (settled(3)[-1][1][1], ids.mint("EVT").encode()):
        server.write("SET", key, theirs)
        code, _, err = run("archive", "fold", "q", "completions", "--keep", "0")
        assert (code, theirs.decode() in err, server.read("GET", key)) == (1, True, theirs)


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("5-3", (5, 3), (5, 3)),
        ("1733000000000", (1733000000000, 0), (1733000000000, MAX_STREAM_PART)),
        ("2024-12-01", (1733011200000, 0), (1733097599999, MAX_STREAM_PART)),
        ("2024-12-01T00:00:00Z", (1733011200000, 0), (1733011200000, MAX_STREAM_PART)),
        ("2024-12-01T01:00:00+01:00", (1733011200000, 0), (1733011200000, MAX_STREAM_PART)),
        (settled(1)[0][1][1].decode(), (START_MS, 7), (START_MS, 7)),
    ],
)
def test_places_in_a_stream(text: str, first: tuple[int, int], last: tuple[int, int]) -> None:
    assert (point(text, last=False), point(text, last=True)) == (first, last)


@pytest.mark.parametrize("text", ["", "yesterday", "1-", "-5", "99999999999999999999", "EVT1", "1969-12-31"])
def test_no_places(text: str) -> None:
    with pytest.raises(BadInputError):
        point(text, last=False)


def test_dead_jobs_and_a_stream_of_that_name() -> None:
    assert ref_of("q", "dead").kind == "dead"
    assert (ref_of("q", "stream:dead").kind, ref_of("q", "stream:dead").stream) == ("stream", "dead")
    assert ref_of("q", "audit").stream == "audit"


def test_status_says_what_the_remote_holds_and_restore_takes_globs(run: Run, server: Server) -> None:
    for queue in ("q", "q2"):
        server.write("XADD", f"emq:{{{queue}}}:stream:audit", "7-0", "job", "x")
        assert run("archive", "fold", queue, "audit")[0] == 0
    assert run("archive", "status", "q")[0] == 0
    code, _, err = run("archive", "status", "q", local="sqlite:///lost.db")
    assert code == 1
    assert "q/audit: the remote holds 1 records" in err
    assert "archive restore q audit" in err
    code, out, err = run("archive", "restore", "q*", "*", "--output", "json", local="sqlite:///lost.db")
    assert code == 0, err
    found = {(row["queue"], row["stream"], row["records"]) for row in json.loads(out)}
    assert found >= {("q", "audit", 1), ("q2", "audit", 1)}
    assert run("archive", "status", "q", local="sqlite:///lost.db")[0] == 0
    code, _, err = run("archive", "restore", "nothing*", local="sqlite:///lost.db")
    assert (code, "the remote holds no archive" in err) == (4, True)


def test_no_time_at_all_is_bad_input(run: Run) -> None:
    code, _, err = run("archive", "fold", "q", "--timeout", "0s")
    assert code == 4
    assert "--timeout: no time at all" in err

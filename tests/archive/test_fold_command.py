"""``emq-ops archive fold``, ``status`` and ``rehydrate`` as a user types them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import jobs, reads
from tests.archive.conftest import Run
from tests.archive.making import settled
from tests.archive.test_dead import make_dead
from tests.support.keyspace import dump
from tests.support.valkey import Valkey

KEY = "emq:{q}:stream:completions"


@pytest.fixture(autouse=True)
def records(server: Server) -> None:
    """60 records."""
    for one in settled(60):
        server.write("XADD", KEY, one[0], *one[1])


def told(out: str) -> dict[str, Any]:
    row: dict[str, Any] = json.loads(out)
    return row


def test_status_says_how_far_it_is(run: Run, server: Server) -> None:
    ids = [one[0].decode() for one in settled(65)]
    code, out, _ = run("archive", "status", "q", "completions", "--output", "json")
    before = told(out)
    assert (code, before["folded_to"], before["lag_records"], before["in_stream"]) == (0, None, 60, 60)
    assert before["lag_seconds"] > 0
    run("archive", "fold", "q", "--keep", "10")
    for one in settled(5, first=60):
        server.write("XADD", KEY, one[0], *one[1])
    code, out, _ = run("archive", "status", "q", "completions", "--output", "json")
    row = told(out)
    assert (row["folded_to"], row["trimmed_to"], row["top"]) == (ids[59], ids[50], ids[64])
    assert (row["lag_records"], row["unshipped"], row["segments"], row["last_lsn"]) == (5, 0, 1, 1)
    assert (row["local_rows"], row["remote_records"], row["watermark"]) == (60, 60, settled(60)[-1][1][1].decode())
    assert row["last_commit_ms"] > 0
    code, out, _ = run("archive", "status", "q", "--output", "jsonl")
    assert [json.loads(line)["stream"] for line in out.splitlines()] == ["completions"]
    assert run("archive", "status", "q")[0] == 0


def test_a_dry_run_changes_nothing(run: Run, server: Server, tmp_path: Path) -> None:
    before = dump(server)
    code, out, _ = run("archive", "fold", "q", "--keep", "10", "--dry-run", "--output", "json")
    row = told(out)
    assert (code, row["folded"], row["shipped"], row["trimmed"]) == (0, 60, 60, 50)
    assert dump(server) == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("--keep", "many"), "is not a whole number"),
        (("--keep", "-1"), "is not at least 0"),
        (("--max-age", "30"), "30s"),
        (("--groups", "some"), "respect, ignore"),
        (("--trim-after", "never"), "remote, local"),
        (("--segment", "64"), "64MiB"),
    ],
)
def test_bad_flags_are_told_before_anything_is_done(run: Run, server: Server, argv: tuple[str, ...], says: str) -> None:
    before = dump(server)
    code, out, err = run("archive", "fold", "q", *argv)
    assert (code, out, err.count("\n")) == (4, "", 1)
    assert says in err
    assert dump(server) == before


def test_bad_names_and_places(run: Run) -> None:
    assert run("archive", "fold", "q{", "--keep", "1")[0] == 4
    assert run("archive", "fold", "q", "x:archived", "--keep", "1")[0] == 4
    code, _, err = run("archive", "fold", "q", "--keep", "1", archive=False)
    assert (code, "no archive is configured" in err) == (4, True)
    code, _, err = run("archive", "fold", "q", "--keep", "1", url="unix:///nowhere/at/all")
    assert (code, err.count("\n")) == (3, 1)


def test_what_could_not_be_done_is_exit_1(run: Run, server: Server, tmp_path: Path) -> None:
    code, out, err = run("archive", "fold", "q", "--keep", "10", "--max-removals", "49", "--output", "json")
    assert (code, told(out)["shipped"], told(out)["trimmed"]) == (1, 60, 0)
    assert "50 would go, more than max_removals 49" in err
    server.write("LPUSH", "emq:{q}:stream:listed", "x")
    code, _, err = run("archive", "fold", "q", "listed")
    assert (code, "is a list, not a stream" in err) == (1, True)
    for one in settled(5, first=60):
        server.write("XADD", KEY, one[0], *one[1])
    (tmp_path / "dir" / "log").rename(tmp_path / "elsewhere")
    code, out, err = run("archive", "fold", "q", "--keep", "10", "--output", "json")
    assert (code, told(out)["folded"], told(out)["trimmed"]) == (1, 5, 0)
    assert "is missing" in err
    assert server.read("XLEN", KEY) == 65


def test_the_config_says_how(run: Run, server: Server, valkey: Valkey, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(
        f"""
server: {{url: "{valkey.url}"}}
state: {{url: "sqlite:///state.db"}}
archive: {{local: "sqlite:///archive.db", remote: {{url: "file:bucket"}}}}
queues:
  q:
    streams: {{completions: {{every: 5s, keep: 20}}}}
  kept:
    protect: true
    streams: {{completions: {{every: 5s, keep: 20}}}}
""",
        "utf-8",
    )
    code, out, _ = run("archive", "fold", "q", "--output", "json", archive=False, url=None)
    assert (code, told(out)["trimmed"]) == (0, 40)
    assert (tmp_path / "archive.db").exists()
    assert list((tmp_path / "bucket").rglob("*.parquet")) != []
    code, out, _ = run("archive", "fold", "q", "--keep", "5", "--output", "json", archive=False, url=None)
    assert (code, told(out)["trimmed"]) == (0, 15)
    code, _, err = run("archive", "fold", "kept", "--keep", "5", archive=False, url=None)
    assert (code, "protected" in err) == (4, True)


def test_the_lease_is_given_up_and_never_left_behind(run: Run, server: Server) -> None:
    run("archive", "fold", "q", "--keep", "10")
    assert server.read("HGET", "emq-ops:{q}:lease", "until") == b"0"
    code, _, err = run("archive", "fold", "q", "--keep", "5", "--local", "sqlite:///other.db")
    assert (code, "belongs to state" in err) == (1, True)


def test_archived_dead_jobs_come_back(run: Run, server: Server) -> None:
    queue = Queue(server, "q")
    made = [make_dead(queue) for _ in range(3)]
    rows = {job: jobs.read_row(queue, job) for job in made}
    code, out, err = run("trim", "q", "--yes", "--keep", "0", "--archive", "--output", "json")
    assert (code, told(out)["removed"]) == (0, 3), err
    assert run("archive", "rehydrate", "q")[0] == 4
    code, out, _ = run("archive", "rehydrate", "q", "--from", "2020-01-01", "--dry-run", "--output", "jsonl")
    assert [json.loads(line)["job"] for line in out.splitlines()] == sorted(made)
    code, _, err = run("archive", "rehydrate", "q", "dead", "--job", made[0])
    assert code == 0, err
    assert jobs.read_row(queue, made[0]) == rows[made[0]]
    assert reads.job_state(queue, made[0]) is reads.JobState.DEAD
    code, _, err = run("archive", "rehydrate", "q", "--job", made[1], "--job", made[2], "--requeue")
    assert code == 0, err
    assert reads.job_state(queue, made[1]) is reads.JobState.PENDING
    assert run("archive", "rehydrate", "q", "--job", "JOB0STBBIRAKHo")[0] == 1
    code, out, _ = run("archive", "status", "q", "--output", "jsonl")
    assert [json.loads(line)["kind"] for line in out.splitlines()] == ["dead"]

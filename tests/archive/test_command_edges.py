"""What the archive's commands say of odd words, of dead jobs, and of what they would do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from emq_ops.cli.archive_read import distinct, point
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from tests.archive.conftest import Run
from tests.archive.making import settled
from tests.archive.test_dead import make_dead
from tests.support.postgres import Postgres
from tests.support.valkey import Valkey

KEY = "emq:{q}:stream:completions"


@pytest.fixture(autouse=True)
def records(server: Server) -> None:
    """20 records."""
    for one in settled(20):
        server.write("XADD", KEY, one[0], *one[1])


def fold(run: Run, *argv: str) -> dict[str, Any]:
    row: dict[str, Any] = json.loads(run("archive", "fold", "q", *argv, "--output", "json")[1])
    return row


def test_a_dry_run_counts_what_would_go_by_age_and_past_groups(run: Run, server: Server) -> None:
    assert fold(run, "--max-age", "1h", "--dry-run")["trimmed"] == 20
    assert fold(run, "--keep", "5", "--max-age", "1h", "--dry-run")["trimmed"] == 20
    assert fold(run, "--keep", "5", "--dry-run")["trimmed"] == 15
    server.write("XADD", KEY, "*", "young", "yes")
    assert fold(run, "--max-age", "1h", "--dry-run")["trimmed"] == 20
    server.write("XGROUP", "CREATE", KEY, "g", settled(8)[-1][0])
    dry = fold(run, "--max-age", "1h", "--dry-run")
    assert (dry["trimmed"], dry["status"], dry["groups"][0]["undelivered"]) == (8, "dry", 13)
    assert fold(run, "--max-age", "1h", "--groups", "ignore", "--dry-run")["trimmed"] == 20
    assert fold(run, "--max-age", "1h")["trimmed"] == 8
    code, out, _ = run("archive", "fold", "q", "--max-age", "1h", "--groups", "ignore", "--dry-run")
    assert (code, "nothing to do" in out, "nothing was changed" in out) == (0, False, True)


def test_a_queue_that_is_a_stream_alone_is_there(run: Run, server: Server) -> None:
    for argv in (["fold", "q"], ["status", "q"], ["read", "q"], ["query", "q", "completions", "SELECT 1"]):
        server.write("DEL", "emq-ops:{q}:lease")
        assert run("archive", *argv)[2] == ""
    assert run("archive", "status", "p", "completions")[0] == 4


def test_trimming_after_local_is_refused_where_hosts_may_be_several(
    run: Run, server: Server, postgres: Postgres
) -> None:
    code, _, err = run("archive", "fold", "q", "--keep", "1", "--trim-after", "local", local=postgres.fresh())
    assert (code, "PostgreSQL" in err, server.read("XLEN", KEY)) == (4, True, 20)


def test_dead_jobs_have_a_status_and_a_policy(run: Run, server: Server, valkey: Valkey, tmp_path: Path) -> None:
    queue = Queue(server, "q")
    for _ in range(3):
        make_dead(queue)
    (tmp_path / "config.yaml").write_text(
        f"""
server: {{url: "{valkey.url}"}}
state: {{url: "sqlite:///state.db"}}
archive: {{local: "sqlite:///archive.db", remote: {{url: "file:bucket"}}}}
queues:
  q: {{dead: {{keep: 0, archive: true, expire_after: 1d}}}}
  kept: {{protect: true}}
""",
        "utf-8",
    )
    assert run("trim", "q", url=None, archive=False)[0] == 0
    code, out, _ = run("archive", "status", "q", "dead", "--output", "json", url=None, archive=False)
    row = json.loads(out)
    assert (code, row["kind"], row["local_rows"], row["remote_records"]) == (0, "dead", 3, 3)
    code, out, err = run("archive", "expire", "q", "dead", "--dry-run", "--output", "json", url=None, archive=False)
    assert (code, json.loads(out)["expired"]) == (0, 0), err
    code, _, err = run("archive", "expire", "kept", "dead", "--older-than", "1d", "--yes", url=None, archive=False)
    assert (code, "protected" in err) == (4, True)


def test_nothing_to_verify_is_said(run: Run) -> None:
    code, _, err = run("archive", "verify", "q")
    assert (code, "holds no archive of q/completions" in err) == (0, True)
    run("archive", "fold", "q")
    assert run("archive", "verify", "q")[2] == ""


def test_an_archive_of_another_state_is_restored_to_be_read(run: Run, server: Server) -> None:
    run("archive", "fold", "q", "--keep", "5")
    server.write("DEL", "emq-ops:{q}:lease")
    code, _, err = run("archive", "restore", "q", local="sqlite:///other.db")
    assert (code, "emq-ops state take-over" in err) == (0, True)
    code, _, err = run("archive", "fold", "q", local="sqlite:///other.db")
    assert (code, "emq-ops state take-over" in err) == (1, True)
    server.write("DEL", "emq-ops:{q}:lease")
    assert run("state", "take-over", "--yes", local="sqlite:///other.db")[0] == 0
    [word] = run("archive", "restore", "q", local="sqlite:///other.db")[2].splitlines()
    assert word.startswith("emq-ops: whether a log ended behind its last commit, no chain can tell")
    assert run("archive", "fold", "q", "--keep", "4", local="sqlite:///other.db")[0] == 0


@pytest.mark.parametrize("argv", [["read", "q"], ["erase", "q", "completions", "--yes"]])
def test_a_job_that_is_no_text_is_bad_input(run: Run, argv: list[str]) -> None:
    code, out, err = run("archive", *argv, "--job", "\udcff")
    assert (code, out, err.count("\n"), "--job" in err) == (4, "", 1, True)


def test_ids_that_look_like_months() -> None:
    assert point("1000-10", last=False) == (1000, 10)
    assert point("2026-13", last=True) == (2026, 13)
    with pytest.raises(BadInputError, match="2026-11-01"):
        point("2026-11", last=False)


def test_every_column_of_a_query_is_shown_and_numbers_are_json(run: Run) -> None:
    sql = "SELECT count(*), count(*), 1 AS a, 2 AS a, 'nan'::DOUBLE AS x FROM records"
    code, out, _ = run("archive", "query", "q", "completions", sql, "--output", "json")
    assert (code, "NaN" in out) == (0, False)
    assert json.loads(out) == [{"count_star()": 20, "count_star()_1": 20, "a": 1, "a_1": 2, "x": "nan"}]
    assert distinct(["a", "a_1", "a", "a"]) == ["a", "a_1", "a_2", "a_3"]

"""Reports as tables: what was done first, to how many and why; what is nothing left out; and no fact lost in JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from emq_ops.cli.output import emit_rows
from emq_ops.cli.report_tables import SHOWN, format_ids, format_report
from emq_ops.passes.sweep.report import SweepReport
from emq_ops.passes.trim.report import TrimReport
from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import claims, enqueue
from tests.support.cli import Ran, emq
from tests.support.consuming import lapse
from tests.support.valkey import Valkey

CONFIG = """
server: {{url: "{url}"}}
archive: {{remote: {{url: "file:bucket"}}}}
queues: {{orders: {{stalled: {{restart: count}}, dead: {{keep: 1}}}}}}
"""


@pytest.fixture
def q(valkey: Valkey, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Queue:
    """A queue with three lapsed leases, in a folder with a config."""
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text(CONFIG.format(url=valkey.url))
    found = Queue(server, "orders")
    for _ in range(3):
        enqueue.enqueue(found, ids.mint(), b"x")
        assert claims.claim(found, 60_000) is not None
    lapse(found)
    return found


def rows(ran: Ran) -> dict[str, str]:
    """The fields of a table, in its order."""
    assert ran.code == 0, ran.err
    return {name: value for name, _, value in (line.partition(" ") for line in ran.out.splitlines())}


def dumped(*words: str) -> dict[str, Any]:
    ran = emq(*words, "--output", "json")
    assert ran.code == 0, ran.err
    found: dict[str, Any] = json.loads(ran.out)
    return found


def test_a_sweep_says_first_what_it_did_and_never_what_it_did_not(q: Queue) -> None:
    table = rows(emq("sweep", "orders"))
    assert list(table)[:4] == ["queue", "status", "dead", "dead_jobs"]
    assert table["dead"].strip() == "3  dead-lettered: stalled too often"
    assert not {"recovered", "exempted", "ghosts", "more", "held_until", "notes", "competitors"} & set(table)
    assert "run" in table
    again = rows(emq("sweep", "orders"))
    assert again["status"].strip() == "done: nothing to do: no lease has lapsed"
    assert set(SweepReport("orders").as_row()) == set(dumped("sweep", "orders"))


def test_a_run_tells_its_counts_and_whom_it_killed(q: Queue) -> None:
    run = dumped("sweep", "orders")["run"]
    table = rows(emq("runs", "show", run))
    assert list(table)[:6] == ["id", "kind", "queue", "status", "dead", "killed"]
    assert "error" not in table
    assert "max_stalled 1" in table["policy"]
    assert "None" not in table["policy"]
    whole = dumped("runs", "show", run)
    assert (whole["counts"], len(whole["killed"]), whole["error"]) == ({"dead": 3}, 3, None)
    assert whole["policy"]["max_removals"] is None


def test_a_dry_trim_names_who_would_go_and_a_trim_who_went(q: Queue) -> None:
    dead = dumped("sweep", "orders")["dead_jobs"]
    dry = rows(emq("trim", "orders", "--keep", "1", "--dry-run"))
    assert dry["status"].strip() == "dry: nothing was changed; this would be done"
    assert {*dry["victim_jobs"].split()} < {*dead}
    done = rows(emq("trim", "orders", "--yes", "--keep", "1"))
    assert list(done)[:7] == ["queue", "status", "victims", "removed", "archived", "left", "removed_jobs"]
    assert done["removed_jobs"].split() == dry["victim_jobs"].split()
    assert set(TrimReport("orders").as_row()) == set(dumped("trim", "orders"))


def test_numbers_are_aligned_and_zeros_that_mean_something_stay() -> None:
    report = TrimReport("orders", keep=0, victims=1200, removed=1197, left=0)
    for reason in ("held", "held", "flow child"):
        report.skip(ids.mint(), reason)
    table = format_report("trim", report.as_row())
    assert table["keep"] == 0
    assert table["victims"] == "1200  beyond what the policy keeps"
    assert table["skipped_count"] == "3     left as they are: 2 held, 1 flow child"
    assert not {"left", "max_age", "token", "skipped"} & set(table)


def test_of_many_ids_a_table_names_the_first() -> None:
    jobs = [ids.mint() for _ in range(SHOWN + 3)]
    assert format_ids(jobs) == " ".join(jobs[:SHOWN]) + " and 3 more (-v names them)"
    assert format_ids(jobs[:SHOWN]) == " ".join(jobs[:SHOWN])


def test_a_pass_that_was_stopped_or_ran_out_of_time_is_not_told_as_idle() -> None:
    report = SweepReport("orders", more=True)
    assert format_report("sweep", report.as_row())["more"].startswith("yes: the time ran out")
    assert format_report("sweep", report.as_row())["status"] == "done"
    stopped = format_report("sweep", SweepReport("orders", status="stopped", stopped_by="max_removals").as_row())
    assert (stopped["status"], stopped["stopped_by"]) == ("stopped", "max_removals")


def test_a_fold_says_what_it_moved(q: Queue) -> None:
    q.server.write("XADD", q.keys.stream("completions"), "1-0", "job", "x")
    table = rows(emq("archive", "fold", "orders", "completions"))
    assert table["folded"].strip() == "1  records newly in the local database"
    assert table["shipped"].strip().startswith("1  ")
    assert rows(emq("archive", "fold", "orders", "completions"))["status"].strip().startswith("done: nothing to do")


def test_a_table_shows_the_head_of_a_cell_of_megabytes(capsys: pytest.CaptureFixture[str]) -> None:
    """Laying all of it out takes longer than anybody waits; the other forms carry it."""
    row = {"job": "j", "error": "x" * 5_000_000}
    emit_rows([row], "table", list(row))
    out = capsys.readouterr().out
    assert "5,000,000 characters" in re.sub(r"\s+", " ", out)
    assert len(out) < 10_000
    emit_rows([row], "jsonl", list(row))
    assert json.loads(capsys.readouterr().out) == row

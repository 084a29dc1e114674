"""The commands of passes, with and without a config file."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from emq_ops.ledger.ledger import open_ledger
from emq_ops.passes.lease.holder import DAEMON
from emq_ops.passes.lease.queue_lease import QueueLease
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from tests.passes.test_once import Daemon
from tests.support.cli import Ran, emq
from tests.support.keyspace import dump
from tests.support.passing import add, dead_of, kill_row, lapse, stall, take
from tests.support.valkey import Valkey


@pytest.fixture
def where(valkey: Valkey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """A server and a state, in a folder without a config."""
    monkeypatch.chdir(tmp_path)
    return "--url", valkey.url, "--state", "sqlite:///state.db"


def said(ran: Ran, code: int = 0) -> Any:
    assert ran.code == code, ran
    return json.loads(ran.out)


def test_sweep_without_a_config(server: Server, mail: Queue, where: tuple[str, ...]) -> None:
    jobs = stall(mail, 3)
    report = said(emq(*where, "sweep", "mail", "--max-stalled", "3", "--output", "json"))
    assert (report["recovered"], report["dead"], report["status"]) == (3, 0, "done")
    assert sorted(report["recovered_jobs"]) == jobs
    [run] = said(emq("runs", "ls", *where, "--output", "json"))
    assert (run["kind"], run["queue"], run["counts"]) == ("sweep", "mail", {"recovered": 3})
    assert said(emq("runs", "show", run["id"], *where, "--output", "json"))["killed"] == []


def test_sweep_dry_run_changes_nothing(server: Server, mail: Queue, where: tuple[str, ...], tmp_path: Path) -> None:
    jobs = stall(mail, 2)
    before = dump(server)
    report = said(emq(*where, "sweep", "mail", "--dry-run", "--output", "json"))
    assert (report["status"], sorted(report["dead_jobs"])) == ("dry", jobs)
    assert dump(server) == before
    assert not (tmp_path / "state.db").exists()


CONFIG = """
server: {{url: "{url}"}}
state: {{url: "sqlite:///state.db"}}
maintenance: [{{queues: quiet, from: 2020-01-01T00:00:00Z, to: 2090-01-01T00:00:00Z}}]
defaults:
  stalled: {{max_stalled: 2}}
  dead: {{keep: 2, archive: false}}
queues:
  mail: {{}}
  quiet: {{stalled: {{max_stalled: 1}}}}
  guarded: {{protect: true}}
"""


def test_with_a_config(server: Server, mail: Queue, valkey: Valkey, where: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG.format(url=valkey.url))
    stall(mail, 2)
    assert said(emq("sweep", "mail", "--output", "json"))["recovered"] == 2  # max_stalled of the file
    stall(mail, 1)
    assert said(emq("sweep", "mail", "--max-stalled", "1", "--output", "json"))["dead"] == 1  # the flag over it
    quiet = Queue(server, "quiet")
    stall(quiet, 3)
    assert said(emq("sweep", "quiet", "--output", "json"))["exempted"] == 3  # the file's window
    kill_row(mail, 5)
    report = said(emq("trim", "mail", "--output", "json"))
    assert (report["removed"], report["left"]) == (4, 2)
    kill_row(Queue(server, "guarded"), 5)
    refused = emq("trim", "guarded", "--yes", "--keep", "1")
    assert refused.code == 1
    assert "protected" in refused.err


def test_trim_without_a_config(server: Server, mail: Queue, where: tuple[str, ...]) -> None:
    dead = kill_row(mail, 5)
    dry = said(emq(*where, "trim", "mail", "--keep", "2", "--dry-run", "--output", "json"))
    assert (dry["victims"], dry["victim_jobs"], dead_of(mail)) == (3, dead[:3], dead)
    unasked = emq(*where, "trim", "mail", "--keep", "2")
    assert (unasked.code, "nobody to ask" in unasked.err, dead_of(mail)) == (4, True, dead)
    assert said(emq(*where, "trim", "mail", "--yes", "--keep", "2", "--output", "json"))["removed_jobs"] == dead[:3]
    assert said(emq(*where, "trim", "mail", "--yes", "--max-age", "1h", "--output", "json"))["removed"] == 0
    over = emq(*where, "trim", "mail", "--yes", "--keep", "0", "--max-removals", "1", "--output", "json")
    assert said(over, 1)["status"] == "stopped"
    assert dead_of(mail) == dead[3:]


def test_trim_with_an_archive(server: Server, mail: Queue, where: tuple[str, ...], tmp_path: Path) -> None:
    dead = kill_row(mail, 5)
    archive = ("--archive", "--local", "sqlite:///archive.db", "--remote", "file:bucket")
    report = said(emq(*where, "trim", "mail", "--yes", "--keep", "2", *archive, "--output", "json"))
    assert (report["removed"], report["archived"]) == (3, 3)
    assert dead_of(mail) == dead[3:]
    assert list((tmp_path / "bucket").rglob("*.parquet"))


@pytest.mark.parametrize(
    ("argv", "code", "text"),
    [
        (("trim", "mail"), 4, "needs keep or max_age"),
        (("trim", "mail", "--yes", "--keep", "1", "--archive"), 4, "no archive is configured"),
        (("trim", "mail", "--keep", "0"), 4, "nobody to ask"),
        (("trim", "mail", "--no-archive"), 4, "nobody to ask"),
        (("trim", "mail", "--yes", "--keep", "-1"), 4, "is not at least 0"),
        (("trim", "mail", "--yes", "--max-age", "5"), 4, "--max-age"),
        (("sweep", "mail", "--max-stalled", "0"), 4, "is not at least 1"),
        (("sweep", "mail", "--restart", "never"), 4, "restart"),
        (("sweep", "ma{il"), 4, "brace"),
        (("hold", "mail"), 4, "for how long"),
        (("hold", "mail", "--for", "2"), 4, "--for"),
        (("maintenance", "start"), 4, "for how long"),
        (("maintenance", "start", "--for", "5m", "nope-*"), 4, "no queue matches"),
        (("runs", "show", "RUN0STJaaaaaaa"), 4, "no run"),
        (("runs", "show", "nonsense"), 4, "malformed id"),
    ],
)
def test_bad_input(
    server: Server, mail: Queue, where: tuple[str, ...], argv: tuple[str, ...], code: int, text: str
) -> None:
    kill_row(mail, 2)
    ran = emq(*argv, *where)
    assert (ran.code, ran.out) == (code, "")
    assert text in ran.err
    assert ran.err.count("\n") == 1


def test_a_queue_that_is_not_there_is_said_and_no_key_is_made(server: Server, where: tuple[str, ...]) -> None:
    for argv in (("sweep", "ordres"), ("trim", "ordres", "--yes", "--keep", "1")):
        ran = emq(*argv, *where, "--output", "json")
        assert (ran.code, ran.out) == (4, "")
        assert "no such queue" in ran.err
    assert server.read("DBSIZE") == 0


def test_an_unreachable_server(where: tuple[str, ...], tmp_path: Path) -> None:
    ran = emq("sweep", "mail", "--url", f"unix://{tmp_path}/none", *where[2:], "--timeout", "1s")
    assert ran.code == 3
    assert ran.err.count("\n") == 1


def test_hold_and_release(server: Server, mail: Queue, where: tuple[str, ...]) -> None:
    stall(mail, 2)
    held = said(emq("hold", "mail", "--for", "2h", "--why", "an incident", *where, "--output", "json"))
    assert held["until_ms"] - held["since_ms"] == 7_200_000
    [listed] = said(emq("hold", *where, "--output", "json"))
    assert listed["why"] == "an incident"
    ran = emq("sweep", "mail", *where, "--output", "json")
    assert said(ran, 1)["status"] == "held"
    assert "held by" in ran.err
    assert "emq-ops release mail" in ran.err
    assert said(emq("release", "mail", *where, "--output", "json"))["released"] is True
    assert said(emq("sweep", "mail", *where, "--output", "json"))["dead"] == 2


def test_maintenance(server: Server, mail: Queue, where: tuple[str, ...]) -> None:
    add(mail)
    window = said(emq("maintenance", "start", "--for", "5m", "ma*", *where, "--output", "json"))
    assert (window["queues"], window["open"]) == ("ma*", True)
    take(mail)
    lapse(mail)
    assert said(emq("sweep", "mail", *where, "--output", "json"))["exempted"] == 1
    [row] = csv.DictReader(io.StringIO(emq("maintenance", "ls", *where, "--output", "csv").out))
    assert row["open"] == "yes"
    assert len(said(emq("maintenance", "stop", *where, "--output", "json"))) == 1
    assert said(emq("maintenance", "stop", *where, "--output", "json")) == []


def test_beside_a_live_daemon_its_report_is_shown(
    server: Server, mail: Queue, where: tuple[str, ...], tmp_path: Path
) -> None:
    stall(mail, 3)
    with open_ledger(f"sqlite:///{tmp_path}/state.db") as ledger, Daemon(server, ledger) as daemon:
        report = said(emq("sweep", "mail", "--max-stalled", "3", *where, "--output", "json"))
        assert (report["recovered"], report["through"]) == (3, "the daemon")
        assert daemon.leadership.me.role == DAEMON


def test_a_state_that_is_lost_is_disowned(server: Server, mail: Queue, where: tuple[str, ...], tmp_path: Path) -> None:
    stall(mail, 1)
    with open_ledger(f"sqlite:///{tmp_path}/lost.db") as lost:
        leadership = QueueLease(server, lost, "mail")
        leadership.acquire()
        ran = emq("release", "mail", "--disown", lost.state, *where)
        assert ran.code == 1  # a process of that state leads it
        leadership.release()
        ran = emq("sweep", "mail", *where)
        assert ran.code == 1
        assert f"state take-over {lost.state}" in ran.err
        assert emq("release", "mail", "--disown", "another", *where).code == 4
        taken = said(emq("release", "mail", "--disown", lost.state, *where, "--output", "json"))
        assert (taken["state"], taken["queues"]) == (lost.state, 1)
    assert said(emq("sweep", "mail", *where, "--output", "json"))["dead"] == 1

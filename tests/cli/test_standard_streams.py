"""A closed or full stdout loses the report, and nothing else."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from emq_ops.ledger import holds
from emq_ops.ledger.ledger import open_ledger
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import reads
from tests.support.passing import kill_row
from tests.support.valkey import Valkey

TOOL = f"{shlex.quote(sys.executable)} -m emq_ops.cli.main"


def shell(folder: Path, valkey: Valkey, line: str) -> subprocess.CompletedProcess[str]:
    """A command line of a shell; ``{}`` stands for the tool, on the test's server and state."""
    tool = f"{TOOL} --url {valkey.url} --state sqlite:///state.db"
    return subprocess.run(
        ["bash", "-c", line.format(tool)], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.fixture(autouse=True)
def state_db(tmp_path: Path, empty_state: Path) -> None:
    """There already: each command is a whole Python, and would have to import what makes it."""
    shutil.copy(empty_state, tmp_path / "state.db")


@pytest.mark.parametrize("where", ["> /dev/full", ">&- <&-", pytest.param(">&-", marks=pytest.mark.soak)])
def test_the_work_is_done_once(server: Server, valkey: Valkey, tmp_path: Path, where: str) -> None:
    q = Queue(server, "mail")
    kill_row(q, 3)
    trimmed = shell(tmp_path, valkey, "{} trim mail --yes --keep 1 --no-archive " + where)
    assert (trimmed.returncode, trimmed.stderr.count("\n")) == (5, 1)
    assert "only the report was lost" in trimmed.stderr
    assert reads.counts(q).dead == 1
    held = shell(tmp_path, valkey, "{} hold mail --for 1m " + where)
    assert held.returncode == 5
    with open_ledger(f"sqlite:///{tmp_path}/state.db") as ledger:
        assert [hold.queue for hold in holds.all_holds(ledger)] == ["mail"]


def test_a_reader_that_went_away_is_no_error(server: Server, valkey: Valkey, tmp_path: Path) -> None:
    kill_row(Queue(server, "mail"), 3)
    ran = shell(tmp_path, valkey, "{} audit dead --list --output json | head -1; exit ${{PIPESTATUS[0]}}")
    assert (ran.returncode, ran.stdout) == (0, "[\n")
    assert "fault of emq-ops" not in ran.stderr


def test_an_error_stays_an_error(valkey: Valkey, tmp_path: Path) -> None:
    assert shell(tmp_path, valkey, "{} trim 'a{{b' > /dev/full").returncode == 4


def test_a_report_that_is_read_is_whole(server: Server, valkey: Valkey, tmp_path: Path) -> None:
    kill_row(Queue(server, "mail"), 3)
    ran = shell(tmp_path, valkey, "{} --output json audit dead --list")
    assert (ran.returncode, len(json.loads(ran.stdout))) == (0, 3)

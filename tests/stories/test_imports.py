"""What a command imports: the SDKs of what it does not use would be most of its time."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from emq_ops.cli import root
from tests.support.cli import emq
from tests.support.valkey import Valkey

HEAVY = ("pyarrow", "boto3", "duckdb", "alembic", "apscheduler", "starlette", "apprise", "jinja2")
LOOK = """
import sys
from emq_ops.cli.main import main
code = max(main(words.split(" ")) for words in sys.argv[2:])
print("imported:", *[name for name in sys.argv[1].split(",") if name in sys.modules], file=sys.stderr)
sys.exit(code not in (0, 2))
"""
CONFIG = """
server: {url: '%s'}
queues: {orders: {stalled: {}, dead: {keep: 3, archive: false}, streams: {completions: {}}}}
"""


@pytest.fixture
def folder(valkey: Valkey, tmp_path: Path, empty_state: Path) -> Path:
    """With a config, and a state that needs no migration: that would import alembic."""
    (tmp_path / "config.yaml").write_text(CONFIG % valkey.url)
    (tmp_path / ".emq").mkdir(mode=0o700)
    shutil.copy(empty_state, tmp_path / ".emq/state.db")
    return tmp_path


def imported(folder: Path, *commands: str) -> set[str]:
    """What these commands together, one after the other in a process of their own, import of what is heavy."""
    args = [sys.executable, "-c", LOOK, ",".join((*HEAVY, "sqlalchemy", "redis")), *commands]
    ran = subprocess.run(args, cwd=folder, capture_output=True, text=True, timeout=60, check=True)
    return set(ran.stderr.rpartition("imported:")[2].split())


@pytest.mark.usefixtures("server")  # empty: another test's state may own the queue
def test_a_sweep_or_a_trim_without_an_archive_imports_none(folder: Path) -> None:
    assert imported(folder, "sweep orders", "trim orders", "plan") == {"sqlalchemy", "redis"}


@pytest.mark.usefixtures("server")  # empty: another test's state may own the queue
def test_what_only_reads_files_or_the_ledger_imports_no_client_and_no_scheduler(folder: Path) -> None:
    assert imported(folder, "validate", "config show orders") == set()
    assert emq("-c", folder / "config.yaml", "apply", "--yes", "--allow-loss").code == 0
    assert imported(folder, "runs ls", "history", "hold", "audit restarts") == {"sqlalchemy"}
    assert imported(folder, "ps", "audit dead") == {"sqlalchemy", "redis"}


@pytest.mark.parametrize("command", ["--help", "--version"])
def test_help_imports_no_command(command: str, tmp_path: Path) -> None:
    assert imported(tmp_path, command) == set()


@pytest.mark.parametrize("noun", sorted(root.COMMANDS))
def test_the_summary_of_a_noun_is_the_first_sentence_of_its_help(noun: str) -> None:
    command = root.LazyGroup().get_command(None, noun)
    assert command.get_short_help_str(limit=1000) == root.COMMANDS[noun][1]

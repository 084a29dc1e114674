"""Files that can't be looked at or are no files of ours: one line that says so, exit 1 or 4, never a fault of our own.

A name of 300 characters stands for every path that the system refuses to look at, whoever runs the tests.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from emq_ops.cli.main import main
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.server import Server
from tests.support.valkey import Valkey

LONG = "n" * 300
HUGE = str(10**20)


@pytest.fixture
def words(valkey: Valkey, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The options of a command on a server and an empty state, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    server.write("HSET", keys_of("q").meta, "concurrency", 5)  # there is a queue
    return ["--url", valkey.url, "--state", "sqlite:///state.db", "--local", "sqlite:///a.db", "--remote", "file:b"]


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (["-c", LONG, "validate"], 4, "no such config file"),
        (["play", LONG], 4, "there is no such playbook"),
        (["--state", f"sqlite:///{LONG}", "doctor"], 2, "1 findings, 0 of them can be mended"),
        (["--state", f"sqlite:///{LONG}", "audit", "dead"], 1, "can't open the database file"),
        (["--state", "sqlite:///pipe", "audit", "dead"], 1, "check the file, its disk and its room"),
        (["--local", f"sqlite:///{LONG}", "archive", "status", "q"], 1, "can't open the database file"),
        (["--url", f"rediss://localhost:1?ca={LONG}", "doctor"], 4, "no such file"),
        (["state", "backup", "/"], 4, "this is a folder"),
        (["state", "export", "/"], 4, "this is a folder"),
        (["state", "import", "binary"], 4, "no exported state"),
        (["state", "import", "deep"], 4, "no exported state"),
        (["-c", "config.yaml", "apply", "deep"], 4, "no saved plan"),
        (["archive", "query", "q", "completions", "/* nothing */"], 4, "no query"),
        (["audit", "restarts", "--burst", HUGE], 4, "too large"),
        (["--local", "sqlite:///x?uri=maybe", "archive", "read", "q"], 4, "options that can't be taken"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else None,
)
def test_an_odd_file(
    words: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    argv: list[str],
    code: int,
    said: str,
) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe" * 100)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "deep").write_text("[" * 100_000)
    (tmp_path / "config.yaml").write_text("queues: {mail: {stalled: {every: 1h}}}\n")
    main([*words, "state", "status"])  # there is a state
    capsys.readouterr()
    assert main([*words, *argv]) == code
    err = capsys.readouterr().err
    assert said in err.splitlines()[-1]
    assert "fault of emq-ops itself" not in err


def test_a_ready_file_that_cant_be_made(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.yaml").write_text("queues: {mail: {stalled: {every: 1h}}}\n")
    assert main(["-c", "config.yaml", *words, "up", "--apply", "--ready-file", "config.yaml/ready"]) == 4
    assert "config.yaml/ready: can't make its folder" in capsys.readouterr().err
    assert "leases" not in {thread.name for thread in threading.enumerate()}  # what it had begun is ended

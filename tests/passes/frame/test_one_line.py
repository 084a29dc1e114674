"""A pass is its folder and one line of the registry: every door has it, and none was told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from tests.support.passing import add
from tests.support.valkey import Valkey

ROOT = Path(__file__).parents[3]
CONFIG = """
server: {{url: "unix://{socket}"}}
state: {{url: "sqlite:///state.db"}}
http: {{listen: "127.0.0.1:0"}}
queues:
  orders:
    toy: {{every: 1h, toys: 2}}
"""
BOOK = """
- name: toys
  queues: orders
  tasks:
    - {name: move, toy: {toys: 4}}
"""


def test_one_line_of_the_registry_is_a_pass_at_every_door(valkey: Valkey, server: Server, tmp_path: Path) -> None:
    add(Queue(server, "orders"))
    (tmp_path / "config.yaml").write_text(CONFIG.format(socket=valkey.socket))
    (tmp_path / "book.yaml").write_text(BOOK)
    done = subprocess.run(
        [sys.executable, "-m", "tests.passes.frame.with_toy", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert '"toys"' in json.dumps(told["schema"])  # the YAML
    assert "how many toys" in json.dumps(told["schema"])
    assert "toys" in told["config"]
    assert "toy" in told["plan"]
    assert "Move toys." in told["nouns"]  # the command line
    assert "How many toys." in told["command"]
    assert "toy" in told["modules"].split()  # playbooks
    assert "how many toys" in told["module"]
    assert [(row["task"], row["status"]) for row in told["once"]] == [("toy", "done")]  # the daemon's tasks
    assert [row["task"] for row in told["tasks"]] == ["toy"]
    assert (told["request"]["toys"], "through" in told["request"]) == (3, True)  # run requests
    assert "<td>toy" in told["page"]  # HTTP
    assert 'emq_ops_task_runs_total{queue="orders",task="toy"}' in told["metrics"]
    assert {(run["kind"], run["counts"].get("toys")) for run in told["runs"]} >= {("toy", 2), ("toy", 3)}

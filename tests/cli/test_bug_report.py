"""What a report of a fault needs, in one file, and nothing secret in it."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import yaml

from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import enqueue
from tests.support.cli import emq
from tests.support.passing import kill_row
from tests.support.valkey import Valkey

PASSWORD = "hunter22-of-nobody"
PAYLOAD = "card 4711 0815"
CONFIG = """\
server: {{url: "${{SERVER}}", password: "${{PW:-}}"}}
state: {{url: "sqlite:///state.db"}}
alerts: [{{url: "json://ops:${{HOOK}}@127.0.0.1:9"}}]
queues:
  orders:
    note: {payload}
    stalled: {{every: 30s}}
    settings: {{repeatables: {{nightly: {{every: 1d, template: '{payload}'}}}}}}
"""


@pytest.fixture
def here(tmp_path: Path, server: Server, valkey: Valkey, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SERVER", valkey.url)
    monkeypatch.setenv("HOOK", PASSWORD)
    Path("config.yaml").write_text(CONFIG.format(payload=PAYLOAD).replace(', password: "${PW:-}"', ""))
    orders = Queue(server, "orders")
    enqueue.enqueue(orders, ids.mint(), PAYLOAD.encode())
    kill_row(orders, 1, payload=PAYLOAD, last_error=f"no {PAYLOAD}")
    assert emq("apply", "--yes").code == 0
    assert emq("audit", "dead", "orders", "--payload", PAYLOAD, "--requeue", "--yes").code == 0
    return tmp_path


@pytest.mark.usefixtures("here")
def test_a_report_says_what_it_needs_and_no_secret(valkey: Valkey) -> None:
    ran = emq("bug-report", "report.yaml")
    assert (ran.code, ran.out) == (0, "report.yaml\n")
    assert "before you share it" in ran.err
    assert stat.S_IMODE(Path("report.yaml").stat().st_mode) == 0o600
    text = Path("report.yaml").read_text()
    for secret in (PASSWORD, PAYLOAD, valkey.url):
        assert secret not in text.replace(
            f"where: {valkey.url}", ""
        )  # where it connected to stands there, without secrets
    report = yaml.safe_load(text)
    assert report["config"]["said"]["server"]["url"] == "${SERVER}"
    assert report["config"]["variables"] == {"SERVER": "set", "HOOK": "set"}
    assert report["server"]["queues"]["orders"]["waiting"] == 2
    assert report["server"]["facts"]["maxmemory_policy"] == "noeviction"
    assert report["state"]["schema"]["has"] == report["state"]["schema"]["newest known"]
    assert report["state"]["runs"][0]["kind"] == "requeue"
    assert report["state"]["revisions"][0]["number"] == 1
    again = emq("bug-report", "report.yaml")
    assert (again.code, "already" in again.err) == (4, True)


@pytest.mark.usefixtures("here")
def test_what_can_t_be_had_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVER", "redis://127.0.0.1:1")
    assert emq("bug-report", "away.yaml").code == 0
    report = yaml.safe_load(Path("away.yaml").read_text())
    assert "127.0.0.1:1" in report["server"]["not to be had"]
    assert report["state"]["runs"]
    Path("config.yaml").write_text("queus: {}\n")
    assert emq("bug-report", "broken.yaml").code == 0
    assert "queus" in yaml.safe_load(Path("broken.yaml").read_text())["config"]["faults"][0]

"""Health, metrics and the page of a living daemon."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from emq_ops.protocol.server import Server
from tests.daemon.test_daemon import config
from tests.support.daemons import site, wait_for
from tests.support.valkey import Valkey


def _get(port: int, path: str, token: str | None = None) -> tuple[int, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.status, answer.read().decode()


def test_health_metrics_and_page(tmp_path: Path, valkey: Valkey, server: Server) -> None:
    text = config(valkey) + "http: {listen: '127.0.0.1:0', token: '${PAGE_TOKEN}'}\n"
    with site(tmp_path / "s", text, {"PAGE_TOKEN": "s3cret"}) as here:
        daemon = here.up("--apply")
        port = wait_for(lambda: daemon.events("http"))[0]["port"]
        status, body = _get(port, "/healthz")
        assert status == 200
        assert json.loads(body)["ok"] is True
        with pytest.raises(urllib.error.HTTPError) as refused:
            _get(port, "/metrics")
        assert refused.value.code == 401
        refused.value.close()
        wait_for(
            lambda: 'emq_ops_task_runs_total{queue="orders",task="stalled"}' in _get(port, "/metrics", "s3cret")[1]
        )
        assert 'emq_ops_queue_led{queue="orders"} 1.0' in _get(port, "/metrics", "s3cret")[1]
        assert "<td>orders</td>" in _get(port, "/", "s3cret")[1]
        assert "s3cret" not in daemon.log.read_text()
        daemon.stop()

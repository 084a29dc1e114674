"""Health, metrics and the page of a living daemon."""

from __future__ import annotations

import json
import re
import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from emq_ops.deploy.model import instant
from emq_ops.http.app import COLUMNS, Access, Pages, PageSources
from emq_ops.http.server import HttpServer
from emq_ops.protocol.errors import BadInputError, EmqError
from emq_ops.protocol.server import Server
from tests.support.daemons import site, wait_for
from tests.support.orders import config
from tests.support.valkey import Valkey

APP = Pages(PageSources(lambda: {"ok": True}, list), Access())


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
        row = dict(zip(COLUMNS, re.findall("<td>(.*?)</td>", _get(port, "/", "s3cret")[1]), strict=False))
        assert row["missed"] == row["failures"] == "0"  # a zero is told as one
        assert 'emq_ops_queue_held{queue="orders"} 0.0' in _get(port, "/metrics", "s3cret")[1]
        assert "<th>held</th>" not in _get(port, "/", "s3cret")[1]
        held = here.json("hold", "orders", "--for", "1h", "--why", "a <b> c")
        window = here.json("maintenance", "start", "--for", "2h")
        wait_for(lambda: "<th>maintenance</th>" in _get(port, "/", "s3cret")[1])
        page = _get(port, "/", "s3cret")[1]
        until = instant(held["until_ms"])
        assert f"<td>until {until} by {held['holder']} (a &lt;b&gt; c)</td>" in page
        assert f"<td>until {instant(window['end_ms'])} by {window['holder']}</td>" in page
        told = ('emq_ops_queue_held{queue="orders"} 1.0', 'emq_ops_queue_maintenance{queue="orders"} 1.0')
        wait_for(lambda: all(line in _get(port, "/metrics", "s3cret")[1] for line in told))
        assert "s3cret" not in daemon.log.read_text()
        daemon.stop()


def test_an_address_that_is_taken_or_is_nobodys_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(EmqError, match="in use") as refused:
            HttpServer(listen, APP)
    assert listen in str(refused.value)
    assert not isinstance(refused.value, BadInputError)
    with pytest.raises(EmqError, match=r"192\.0\.2\.1:9119"):
        HttpServer("192.0.2.1:9119", APP)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "listen",
    ["", "9119", ":9119", "::1:9119", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:65536", "127.0.0.1:-1", "unix:/tmp/s"],
)
def test_what_is_no_address_to_listen_on(listen: str) -> None:
    with pytest.raises(BadInputError, match=r"http\.listen"):
        HttpServer(listen, APP)

"""Scheduled drift: an alert and an event once, a metric while it lasts, a word when it is over."""

from __future__ import annotations

import urllib.request
from pathlib import Path
from typing import Any

from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import control
from tests.support.daemons import site, wait_for
from tests.support.ports import free_ports
from tests.support.valkey import Valkey


def test_drift_is_looked_for_on_schedule(tmp_path: Path, server: Server, valkey: Valkey) -> None:
    [port] = free_ports(1)
    queue = Queue(server, "orders")
    config = (
        f'server: {{url: "{valkey.url}"}}\nstate: {{url: "sqlite:///state.db"}}\n'
        f'http: {{listen: "127.0.0.1:{port}"}}\ndaemon: {{drift: 1s}}\n'
        "queues: {orders: {stalled: {every: 1h}, settings: {concurrency: 5}}}\n"
    )
    with site(tmp_path, config) as here:
        here.run("apply", "--yes")
        daemon = here.up()

        def drifted() -> float | None:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
                lines = page.read().decode().splitlines()
            told = [line.split()[-1] for line in lines if line.startswith('emq_ops_queue_drifted{queue="orders"}')]
            return float(told[0]) if told else None

        def alerts() -> list[dict[str, Any]]:
            return [event for event in daemon.events("alerted") if event["kind"] == "drift"]

        control.set_concurrency(queue, 9)
        [seen] = wait_for(lambda: daemon.events("drift_seen"), why="the event")
        assert (seen["queue"], seen["settings"]) == ("orders", ["concurrency"])
        assert wait_for(drifted, why="the metric") == 1
        [alert] = alerts()
        assert "concurrency: applied 5, on the server 9" in alert["text"]
        control.set_concurrency(queue, 5)
        wait_for(lambda: daemon.events("drift_ended"), why="its end")
        assert drifted() is None
        assert len(alerts()) == 1

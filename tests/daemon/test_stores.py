"""C22: a store that accepts and never answers holds up its own runs, and nobody else's."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import reads
from tests.support.daemons import site, wait_for
from tests.support.orders import lapsed
from tests.support.s3 import CREDENTIALS
from tests.support.valkey import Valkey

CONFIG = """
server: {{url: "unix://{socket}"}}
state: {{url: "sqlite:///state.db"}}
archive:
  local: "sqlite:///archive.db"
  remote: {{url: "s3://bucket/x", endpoint: "http://127.0.0.1:{port}", timeout: 60s}}
  ship_after: 1ms
queues:
  hung: {{streams: {{completions: {{every: 1s, keep: 1, timeout: 2s}}}}}}
  orders: {{stalled: {{every: 200ms}}}}
"""


@pytest.fixture
def mute() -> Iterator[int]:
    """The port of a listener that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken: list[socket.socket] = []

        def accept() -> None:
            while True:
                try:
                    taken.append(listener.accept()[0])
                except OSError:
                    return

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(5)
        for connection in taken:
            connection.close()


def test_c22_a_mute_store(tmp_path: Path, valkey: Valkey, server: Server, mute: int) -> None:
    stream = Queue(server, "hung").keys.stream("completions")
    for n in range(5):
        server.write("XADD", stream, f"{1_796_000_000_000 + n}-0", "job", f"j{n}")
    with site(tmp_path / "s", CONFIG.format(socket=valkey.socket, port=mute), CREDENTIALS) as here:
        daemon = here.up("--apply")
        failed = wait_for(lambda: len(daemon.events("task_failed")) >= 2 and daemon.events("task_failed"))
        assert [e["failures"] for e in failed[:2]] == [1, 2]
        assert {e["task"] for e in failed} == {"hung/stream:completions"}
        q = Queue(server, "orders")
        job = lapsed(server, 1)[0]
        wait_for(lambda: reads.job_state(q, job) is reads.JobState.DEAD)
        assert not [e for e in daemon.events("task_late") if e["task"] == "orders/stalled"]
        row = next(r for r in here.json("ps") if (r["queue"], r["task"]) == ("hung", "stream:completions"))
        assert row["failures"] >= 2
        started = time.monotonic()
        daemon.signal(signal.SIGTERM)
        assert daemon.process.wait(12) == 0
        assert time.monotonic() - started < 10.5
        assert server.read("XLEN", stream) == 5  # nothing was trimmed that was not proven

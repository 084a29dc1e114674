"""What the tests of single commands share."""

from __future__ import annotations

from pathlib import Path

import pytest

from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions.enqueue import enqueue
from tests.support.valkey import Valkey

CONFIG = """
server: {{url: "{url}"}}
state: {{url: "sqlite:///state.db"}}
archive: {{local: "sqlite:///archive.db", remote: {{url: "file:bucket"}}}}
queues:
  orders:
    stalled: {{every: 1h}}
    dead: {{every: "0 3 * * * Europe/Berlin", keep: 10}}
"""


@pytest.fixture
def site(valkey: Valkey, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    """A folder with a config, and its server with one waiting job."""
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text(CONFIG.format(url=valkey.url))
    enqueue(Queue(server, "orders"), ids.mint(), b"x")
    return server

"""A state database for pass tests (SQLite; the ledger's own tests run over PostgreSQL too), and a queue."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from emq_ops.ledger.ledger import Ledger, open_ledger
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from tests.support.valkey import Valkey


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with open_ledger(f"sqlite:///{tmp_path}/state.db") as opened:
        yield opened


@pytest.fixture
def mail(server: Server) -> Queue:
    return Queue(server, "mail")


@pytest.fixture
def durable() -> Iterator[Valkey]:
    """A server of one's own that keeps its data over a restart."""
    with Valkey(appendonly="yes", appendfsync="always") as valkey:
        yield valkey

"""The queue that worker tests work."""

from __future__ import annotations

import pytest

from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server


@pytest.fixture
def q(server: Server) -> Queue:
    return Queue(server, "orders")

"""A queue for pass tests."""

from __future__ import annotations

import pytest

from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server


@pytest.fixture
def mail(server: Server) -> Queue:
    return Queue(server, "mail")

"""Fixtures that every test may take: one real server a worker process, emptied before each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from emq_ops.protocol.server import Server, connect
from tests.support.valkey import Valkey


@pytest.fixture(scope="session")
def valkey() -> Iterator[Valkey]:
    with Valkey() as server:
        yield server


@pytest.fixture
def server(valkey: Valkey) -> Iterator[Server]:
    """An open connection to an empty real server."""
    with valkey.client() as admin:
        admin.flushall()
        admin.config_resetstat()
    with connect(valkey.url) as opened:
        yield opened

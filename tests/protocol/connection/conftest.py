"""A proxy before the server, and a connection through it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from emq_ops.protocol.server import ConnectionOptions, Server, connect
from tests.support.proxy import RespProxy
from tests.support.valkey import Valkey


@pytest.fixture
def proxy(valkey: Valkey, server: Server) -> Iterator[RespProxy]:
    with RespProxy(valkey.url) as opened:
        yield opened


@pytest.fixture
def through(proxy: RespProxy) -> Iterator[Server]:
    """An open server behind the proxy; short timeouts, so that a silent server shows soon."""
    with connect(proxy.url, ConnectionOptions(socket_timeout=0.4, patience=3)) as opened:
        yield opened

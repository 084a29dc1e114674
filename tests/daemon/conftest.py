"""A site of the queue `orders`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from emq_ops.protocol.server import Server
from tests.support.daemons import Site, site
from tests.support.orders import config
from tests.support.valkey import Valkey


@pytest.fixture
def here(tmp_path: Path, valkey: Valkey, server: Server) -> Iterator[Site]:
    with site(tmp_path / "s", config(valkey)) as made:
        yield made

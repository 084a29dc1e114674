"""Fixtures that every test may take: one real server a worker process, emptied before each test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from emq_ops.ledger.ledger import Ledger, open_ledger
from emq_ops.protocol.server import Server, connect
from tests.support.postgres import Postgres
from tests.support.s3 import S3Server
from tests.support.valkey import Valkey
from tests.support.zygote import Zygote, shared


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long ones begin first: at the end every worker still has something short to do."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


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


@pytest.fixture
def durable() -> Iterator[Valkey]:
    """A server of one's own that keeps its data over a restart."""
    with Valkey(appendonly="yes", appendfsync="always") as valkey:
        yield valkey


@pytest.fixture
def state(tmp_path: Path) -> str:
    """The URL of a state database (SQLite; the ledger's own tests run over PostgreSQL too)."""
    return f"sqlite:///{tmp_path}/state.db"


@pytest.fixture(scope="session")
def empty_state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state database that was made and never used; copying it is cheaper than making another."""
    path = tmp_path_factory.mktemp("state") / "empty.db"
    open_ledger(f"sqlite:///{path}").close()
    return path


@pytest.fixture
def ledger(state: str, empty_state: Path) -> Iterator[Ledger]:
    """The state database, open."""
    file = Path(state.removeprefix("sqlite:///"))
    if not file.exists():
        shutil.copy(empty_state, file)
    with open_ledger(state) as opened:
        yield opened


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A real PostgreSQL; ``postgres.fresh()`` is the URL of an empty database."""
    with Postgres() as server:
        yield server


@pytest.fixture(scope="session")
def zygote() -> Zygote:
    """Makes processes that cost milliseconds."""
    return shared()


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """A real S3-compatible server; ``s3.bucket()`` is the name of an empty bucket."""
    with S3Server() as server:
        yield server

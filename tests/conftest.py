"""Fixtures that every test may take: one real server a worker process, emptied before each test."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from emq_ops.ledger.ledger import Ledger, open_ledger
from emq_ops.protocol.masking import forget
from emq_ops.protocol.server import Server, connect
from tests.support.cluster import Cluster, ask
from tests.support.postgres import Postgres
from tests.support.s3 import S3Server
from tests.support.shards import Shard
from tests.support.states import keep_compiled, keep_schemas
from tests.support.valkey import Valkey
from tests.support.zygote import Zygote, shared

os.environ["COLUMNS"] = "1000"  # tables with all their columns, unless a test is about that

MEMORY = Path("/dev/shm")
ROOM = 2 * 2**30
"""Bytes that a run may need: its databases, buckets and append-only files, all at once."""
GARBAGE = 400_000
"""Objects made and not freed since the garbage was last collected, beyond which that is worth its time."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shard", type=Shard.parse, help="K/N: only the K-th of N parts of what is selected")


def pytest_configure() -> None:
    """Temporary folders lie in memory where there is room: no test pulls the plug, so none need wait for the disk."""
    if "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM:
        os.environ["TMPDIR"] = str(MEMORY)  # what is started from here has it too
        tempfile.tempdir = None
    ours = tempfile.mkdtemp(prefix="emq-ops-user-")  # contexts and caches of whoever runs the tests are nobody's here
    atexit.register(shutil.rmtree, ours, ignore_errors=True)
    os.environ |= {"XDG_CONFIG_HOME": f"{ours}/config", "XDG_CACHE_HOME": f"{ours}/cache"}
    gc.disable()  # a tenth of all time went into it
    keep_schemas()
    keep_compiled()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is imported and collected stays to the end, so the garbage collector need not look at it."""
    yield
    gc.freeze()


def pytest_runtest_teardown() -> None:
    """Collects garbage between tests, where there is enough of it."""
    if gc.get_count()[0] > GARBAGE:
        gc.collect()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The long ones begin first: at the end every worker still has something short to do."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.hookimpl(trylast=True, specname="pytest_collection_modifyitems")
def pytest_take_shard(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what is not of the shard, once all marks are set and `-m` has chosen."""
    shard: Shard | None = config.getoption("--shard")
    if shard is not None:
        mine = shard.of({item.nodeid: minutes(item) for item in items})
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in mine])
        items[:] = [item for item in items if item.nodeid in mine]


def minutes(item: pytest.Item) -> float:
    """What the mark of a soak test says that it takes."""
    mark = item.get_closest_marker("soak")
    return float(mark.kwargs.get("minutes", 0)) if mark else 0.0


@pytest.fixture(autouse=True)
def no_secrets() -> None:
    """What one test's secrets are, are words of the next."""
    forget()


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


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Three primaries; for tests that leave it whole."""
    with Cluster() as opened:
        yield opened


@pytest.fixture
def on_cluster(cluster: Cluster) -> Iterator[Server]:
    """An open connection to an empty real Cluster."""
    for node in cluster.nodes:
        ask(node, "FLUSHALL")
    with connect(cluster.url) as opened:
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

"""Backends for the archive's contract: each local database with each object store."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emq_archive.local import SqlStore, open_local
from emq_archive.local.store import LOCAL
from emq_archive.ports import Remote
from emq_archive.remote import open_remote
from emq_ops.protocol.server import Server
from tests.archive.folding import Host
from tests.support.cli import Ran, emq
from tests.support.oracle import Bucket
from tests.support.postgres import Postgres
from tests.support.s3 import CREDENTIALS, S3Server
from tests.support.valkey import Valkey

LOCALS = ("sqlite", "postgres")
REMOTES = ("directory", "s3")


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file of this version's schema, to be copied: migrating takes longer than most tests."""
    path = tmp_path_factory.mktemp("migrated") / "empty.db"
    open_local(f"sqlite:///{path}").close()
    return path


@pytest.fixture(scope="session")
def migrated_postgres(postgres: Postgres) -> str:
    """The same as a PostgreSQL database."""
    url = postgres.fresh()
    open_local(url).close()
    return url


@pytest.fixture(scope="session")
def left() -> list[str]:
    """PostgreSQL databases of this version's schema that a test is through with."""
    return []


@pytest.fixture(params=LOCALS)
def backend(request: pytest.FixtureRequest) -> str:
    """Each kind of local database in turn."""
    return str(request.param)


@pytest.fixture
def new_local_url(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Makes URLs of fresh local databases, empty and without a schema."""
    if backend == "postgres":
        fresh: Callable[[], str] = request.getfixturevalue("postgres").fresh
        return fresh
    names = iter(range(1000))
    return lambda: f"sqlite:///{tmp_path}/local-{next(names)}.db"


@pytest.fixture
def new_local(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], SqlStore]]:
    """Opens fresh local databases."""
    opened: list[SqlStore] = []
    databases: list[str] = []

    def make() -> SqlStore:
        if backend == "postgres":
            url = database(request)
            databases.append(url)
        else:
            path = tmp_path / f"copied-{len(opened)}.db"
            shutil.copyfile(request.getfixturevalue("migrated"), path)
            url = f"sqlite:///{path}"
        opened.append(open_local(url))
        return opened[-1]

    yield make
    for store in opened:
        store.close()
    if databases:
        request.getfixturevalue("left").extend(databases)


def database(request: pytest.FixtureRequest) -> str:
    """The URL of an empty PostgreSQL database with a schema."""
    postgres: Postgres = request.getfixturevalue("postgres")
    left: list[str] = request.getfixturevalue("left")
    if left:
        return postgres.emptied(left.pop(), but=LOCAL.version_table)
    return postgres.fresh(request.getfixturevalue("migrated_postgres"))


@pytest.fixture
def local(new_local: Callable[[], SqlStore]) -> SqlStore:
    return new_local()


@pytest.fixture(params=REMOTES)
def remote_url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a fresh object store; credentials are in the environment, as boto3 finds them."""
    if request.param == "directory":
        return f"file:{tmp_path}/bucket"
    s3 = request.getfixturevalue("s3")
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.url)
    return f"s3://{s3.bucket()}/some/prefix"


@pytest.fixture
def remote(remote_url: str) -> Iterator[Remote]:
    opened = open_remote(remote_url)
    yield opened
    opened.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "bucket"


@pytest.fixture
def folder(root: Path) -> Remote:
    return open_remote(f"file:{root}")


DIAGONAL = [("sqlite", "directory"), ("postgres", "s3")]
"""The pairs of `make test`, so that each backend is under each test, but for those marked `alike`: what they send to
PostgreSQL and S3 is sent by others, so there they are on the first pair. `make soak` runs the rest."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        callspec = getattr(item, "callspec", None)
        if callspec is None or not item.nodeid.startswith("tests/archive/"):
            continue
        pair = callspec.params.get("pair") or [callspec.params.get(name) for name in ("backend", "remote_url")]
        usual = DIAGONAL[:1] if item.get_closest_marker("alike") else DIAGONAL
        if not any(all(one in (None, other) for one, other in zip(pair, some, strict=True)) for some in usual):
            item.add_marker(pytest.mark.soak)


Run = Callable[..., Ran]


@pytest.fixture
def run(server: Server, valkey: Valkey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command line in an empty folder, with `url` and an archive below the folder or, with `archive` false,
    whatever its config says."""
    monkeypatch.chdir(tmp_path)

    def call(*argv: str, url: str | None = valkey.url, local: str = "sqlite:///f.db", archive: bool = True) -> Ran:
        words = ["--url", url] if url else []
        if archive:
            words += ["--local", local, "--remote", "file:dir"]
        return emq(*words, *argv)

    return call


@pytest.fixture(params=itertools.product(LOCALS, REMOTES), ids="-".join)
def pair(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Each pair of backends."""
    found: tuple[str, str] = request.param
    return found


@pytest.fixture
def host(
    pair: tuple[str, str],
    server: Server,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Host]:
    """A driver's host on each pair of backends."""
    local, remote = pair
    local_url = f"sqlite:///{tmp_path}/a.db" if local == "sqlite" else database(request)
    remote_url, bucket = f"file:{tmp_path}/bucket", Bucket.folder(tmp_path / "bucket")
    if remote == "s3":
        s3: S3Server = request.getfixturevalue("s3")
        for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL_S3": s3.url}.items():
            monkeypatch.setenv(name, value)
        name = s3.bucket()
        remote_url, bucket = f"s3://{name}/some/prefix", Bucket.s3(s3.client(), name, "some/prefix/")
    made = Host(server, local_url, remote_url, bucket)
    yield made
    made.close()
    if local != "sqlite":
        request.getfixturevalue("left").append(local_url)

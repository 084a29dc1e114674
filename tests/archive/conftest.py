"""Backends for the archive's contract: each local database with each object store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emq_archive.local import SqlStore, open_local
from emq_archive.ports import Remote
from emq_archive.remote import open_remote
from tests.support.s3 import CREDENTIALS

LOCALS = ("sqlite", "postgres")
REMOTES = ("directory", "s3")


@pytest.fixture(params=LOCALS)
def new_local_url(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Makes URLs of fresh local databases."""
    if request.param == "postgres":
        fresh: Callable[[], str] = request.getfixturevalue("postgres").fresh
        return fresh
    names = iter(range(1000))
    return lambda: f"sqlite:///{tmp_path}/local-{next(names)}.db"


@pytest.fixture
def new_local(new_local_url: Callable[[], str]) -> Iterator[Callable[[], SqlStore]]:
    """Opens fresh local databases."""
    opened: list[SqlStore] = []

    def make() -> SqlStore:
        opened.append(open_local(new_local_url()))
        return opened[-1]

    yield make
    for store in opened:
        store.close()


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

"""A state database, and a server that keeps its data over a restart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from emq_ops.ledger.ledger import Ledger, open_ledger
from tests.support.valkey import Valkey


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test is at home in a folder of its own: a command without a config keeps its state under ``.emq`` there."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def state(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/state.db"


@pytest.fixture
def ledger(state: str) -> Iterator[Ledger]:
    with open_ledger(state) as opened:
        yield opened


@pytest.fixture
def durable() -> Iterator[Valkey]:
    with Valkey(appendonly="yes", appendfsync="always") as valkey:
        yield valkey

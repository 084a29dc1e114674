"""A bench for playbooks: a real server, a state database of its own, a folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from emq_ops.ledger.ledger import open_ledger
from emq_ops.protocol.server import Server
from tests.playbook.bench import Bench
from tests.playbook.place import place

__all__ = ["place"]


@pytest.fixture
def bench(server: Server, tmp_path: Path, empty_state: Path) -> Iterator[Bench]:
    shutil.copy(empty_state, tmp_path / "state.db")
    with open_ledger(f"sqlite:///{tmp_path}/state.db") as ledger:
        yield Bench(server, ledger, tmp_path / "books")

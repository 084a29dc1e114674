"""A server, a state (SQLite and PostgreSQL), and configs applied from text."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emq_ops.config.loader import Loaded, load
from emq_ops.config.wiring import Wiring
from emq_ops.deploy.deployment import Deployment
from emq_ops.deploy.model import Proposal
from emq_ops.ledger.ledger import Ledger, open_ledger
from emq_ops.protocol.server import Server


@pytest.fixture(params=["sqlite", "postgresql"])
def state_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/state.db"
    return str(request.getfixturevalue("postgres").fresh())


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """The same, for what does not depend on the database."""
    return f"sqlite:///{tmp_path}/state.db"


@pytest.fixture
def ledger(state_url: str) -> Iterator[Ledger]:
    with open_ledger(state_url) as opened:
        yield opened


class Desk:
    """A session with a config file that is written anew for each step of a test."""

    def __init__(self, server: Server, ledger: Ledger, folder: Path) -> None:
        self.server, self.ledger = server, ledger
        self.file = folder / "c.yaml"
        self.env = dict(os.environ)
        self.session = Deployment(server, ledger, Wiring.of_urls(self.env, folder))

    def config(self, text: str) -> Loaded:
        self.file.write_text(text)
        return load([self.file], self.env)

    def propose(self, text: str, revert: tuple[str, ...] = ()) -> Proposal:
        return self.session.propose(self.config(text), revert)

    def apply(self, text: str, *, revert: tuple[str, ...] = (), allow_loss: bool = False) -> int | None:
        return self.session.apply(self.propose(text, revert), allow_loss=allow_loss).revision


@pytest.fixture
def light_desk(server: Server, sqlite_url: str, tmp_path: Path) -> Iterator[Desk]:
    """As desk, on SQLite alone: for what does not depend on the database."""
    with open_ledger(sqlite_url) as ledger:
        yield Desk(server, ledger, tmp_path)


@pytest.fixture
def desk(server: Server, ledger: Ledger, tmp_path: Path) -> Desk:
    return Desk(server, ledger, tmp_path)


@pytest.fixture
def make_desk(server: Server, sqlite_url: str, tmp_path: Path) -> Iterator[Callable[[], Desk]]:
    """Desks of one SQLite state, as several processes would have them."""
    opened: list[Ledger] = []

    def make() -> Desk:
        opened.append(open_ledger(sqlite_url))
        return Desk(server, opened[-1], tmp_path)

    yield make
    for ledger in opened:
        ledger.close()

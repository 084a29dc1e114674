"""State databases of this version's schema without their migrations: a copy of one that was brought up once a process.

The copies are empty, without an id too, so that each becomes a state of its own.
"""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

from emq_ops.database.engine import open_database
from emq_ops.ledger.ledger import PROFILE, STATE
from tests.support.postgres import Postgres


def _brought_up(url: str) -> str:
    with open_database(url, PROFILE) as database:
        STATE.upgrade(database)
    return url


@functools.cache
def _file() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="emqstate-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _brought_up(f"sqlite:///{folder}/state.db")
    return folder / "state.db"


@functools.cache
def _database(postgres: Postgres) -> str:
    return _brought_up(postgres.fresh())


def sqlite_state(path: Path) -> str:
    """The URL of a new state in this file."""
    shutil.copyfile(_file(), path)
    return f"sqlite:///{path}"


def postgres_state(postgres: Postgres) -> str:
    """The URL of a new state in a database of its own."""
    return postgres.fresh(like=_database(postgres))

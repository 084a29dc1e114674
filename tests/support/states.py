"""State databases of this version's schema without their migrations: a copy of one that was brought up once a process.

The copies are empty, without an id too, so that each becomes a state of its own. `keep_schemas` does as much for
databases that the product makes.
"""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path
from typing import Any

from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, MetaData, event, inspect
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.util import LRUCache

from emq_ops.database import scripts
from emq_ops.database.engine import open_database
from emq_ops.ledger.ledger import PROFILE, STATE
from tests.support.postgres import Postgres


def keep_schemas() -> None:
    """Migrations run once a process for each kind of empty database. The next one is sent what that one was sent, which
    is a twentieth of the work: alembic and SQLAlchemy make few statements in a long time."""
    run = scripts.run
    sent: dict[tuple[str, str], list[tuple[str, Any]]] = {}

    def run_or_send(connection: Connection, directory: ScriptDirectory, version_table: str, metadata: MetaData) -> None:
        kind = connection.dialect.name, str(directory.dir)
        if inspect(connection).get_table_names():
            run(connection, directory, version_table, metadata)
        elif kind in sent:
            for statement, values in sent[kind]:
                connection.exec_driver_sql(statement, values)
        else:
            noted: list[tuple[str, Any]] = []

            def note(_connection: Any, _cursor: Any, statement: str, values: Any, *_: Any) -> None:
                if not statement.lstrip().upper().startswith(("SELECT", "PRAGMA")):
                    noted.append((statement, values))

            event.listen(connection, "before_cursor_execute", note)
            run(connection, directory, version_table, metadata)
            event.remove(connection, "before_cursor_execute", note)
            sent[kind] = noted

    scripts.run = run_or_send


def keep_compiled() -> None:
    """Statements are compiled once a process, and not once for each database that it opens. For SQLAlchemy, dialects of
    one type that speak to servers of one version are the same."""
    compiled = LRUCache[Any, Any](5000)
    made = Engine.__init__

    def make(self: Engine, *args: Any, **more: Any) -> None:
        made(self, *args, **more)
        self._compiled_cache = compiled

    def kind(dialect: Any) -> tuple[object, ...]:
        return type(dialect), getattr(dialect, "server_version_info", None)

    for patched, name, method in (
        (Engine, "__init__", make),
        (DefaultDialect, "__hash__", lambda self: hash(kind(self))),
        (DefaultDialect, "__eq__", lambda self, other: isinstance(other, DefaultDialect) and kind(self) == kind(other)),
    ):
        setattr(patched, name, method)


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

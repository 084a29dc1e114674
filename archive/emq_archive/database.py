"""What the local archive and the ledger share as databases: SQLite's WAL mode, and the schema upgrade."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import resources
from typing import Any

from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.runtime.environment import EnvironmentContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, MetaData, text

from emq_ops.protocol.errors import EmqError


def to_wal(cursor: Any, seconds: float) -> None:
    """WAL mode on a connection of SQLite. Changing it while another process does the same, or closes as the last one,
    fails at once, whatever the busy timeout says: so it is tried again for `seconds`.

    Raises sqlite3.OperationalError.
    """
    until = time.monotonic() + seconds
    while True:
        try:
            if cursor.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                cursor.execute("PRAGMA journal_mode=WAL").fetchone()
            return
        except sqlite3.OperationalError as fault:
            if fault.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                raise
            time.sleep(0.005)


@dataclass(frozen=True)
class Migrations:
    """The way of one kind of database to this version's schema."""

    package: str
    """The import package whose folder `migrations` holds alembic's scripts."""
    version_table: str
    lock: int
    """The key of the advisory lock under which a PostgreSQL is upgraded."""
    metadata: MetaData
    transaction: Callable[..., AbstractContextManager[Connection]]
    """Called as ``transaction(engine, writes=...)``."""
    newer: Callable[[str, Engine], EmqError]
    """The error for a database whose revision this version does not know."""

    def scripts(self) -> ScriptDirectory:
        """The migrations that ship with this version."""
        config = Config()
        config.set_main_option("script_location", str(resources.files(self.package).joinpath("migrations")))
        config.set_main_option("path_separator", "newline")
        return ScriptDirectory.from_config(config)

    def current(self, connection: Connection) -> str | None:
        """The revision that a database is at, None for an empty one."""
        context = MigrationContext.configure(connection, opts={"version_table": self.version_table})
        return context.get_current_revision()

    def upgrade(self, engine: Engine, directory: ScriptDirectory | None = None) -> None:
        """Brings the database up in one transaction under a lock: killed anywhere, it stands where it stood; several
        processes at once are fine. Raises what `newer` makes."""
        directory = directory or self.scripts()
        head = directory.get_current_head()
        with self.transaction(engine, writes=False) as connection:
            if self.current(connection) == head:
                return
        with self.transaction(engine, writes=True) as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": self.lock})
            at = self.current(connection)  # another process may have been quicker
            if at == head:
                return
            if at is not None and at not in {script.revision for script in directory.walk_revisions()}:
                raise self.newer(at, engine)
            self._run(connection, directory)

    def _run(self, connection: Connection, directory: ScriptDirectory) -> None:
        def steps(revision: object, _context: object) -> object:
            return directory._upgrade_revs("head", revision)  # type: ignore[arg-type]  # alembic's own recipe

        with EnvironmentContext(Config(), directory, fn=steps) as environment:
            environment.configure(
                connection=connection,
                target_metadata=self.metadata,
                version_table=self.version_table,
                transactional_ddl=True,
                transaction_per_migration=False,
            )
            # No begin_transaction(): the caller's transaction holds all of it.
            environment.run_migrations()

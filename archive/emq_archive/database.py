"""What the local archive and the ledger share as databases: SQLite's WAL mode, and the schema upgrade."""

from __future__ import annotations

import importlib
import re
import sqlite3
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, MetaData, event, inspect, text

from emq_ops.protocol.errors import EmqError

if TYPE_CHECKING:
    from alembic.script import ScriptDirectory


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


def watch_file(engine: Engine, path: Path, gone: Callable[[], EmqError]) -> None:
    """Sees to it that an engine of SQLite goes on with the file it began with, and makes no new one in the place of one
    that was deleted or replaced: what was written there would be lost, or begin another history. A connection then
    raises what `gone` makes. To be called before the first connection."""
    known: list[tuple[int, int]] = []

    def check(*_: object) -> None:
        try:
            found = path.stat()
        except OSError:
            same = not known
        else:
            same = not known or known[0] == (found.st_dev, found.st_ino)
        if not same:
            raise gone()

    def made(*_: object) -> None:
        if not known:
            found = path.stat()
            known.append((found.st_dev, found.st_ino))

    event.listen(engine, "do_connect", check)
    event.listen(engine, "connect", made)
    event.listen(engine, "checkout", check)


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

    @cached_property
    def head(self) -> str:
        """The revision of this version's schema: that of the last script, ``v<revision>_<name>.py``."""
        names = (entry.name for entry in self.folder.joinpath("versions").iterdir())
        return max(match[1] for name in names if (match := re.fullmatch(r"v(\d{4})_\w+\.py", name)))

    @property
    def folder(self) -> Traversable:
        """Where the scripts are."""
        return resources.files(self.package).joinpath("migrations")

    def current(self, connection: Connection) -> str | None:
        """The revision that a database is at, None for an empty one."""
        if not inspect(connection).has_table(self.version_table):
            return None
        found = connection.execute(text(f"SELECT version_num FROM {self.version_table}")).scalar()
        return None if found is None else str(found)

    def upgrade(self, engine: Engine, directory: ScriptDirectory | None = None) -> None:
        """Brings the database up in one transaction under a lock: killed anywhere, it stands where it stood; several
        processes at once are fine. `directory`: other scripts than those that ship. Raises what `newer` makes."""
        head = self.head if directory is None else directory.get_current_head()
        with self.transaction(engine, writes=False) as connection:
            if self.current(connection) == head:
                return
        # alembic takes as long to import as all that an ordinary command does, and hardly any start needs it.
        importlib.import_module("emq_archive.migrating").bring_up(self, engine, directory)

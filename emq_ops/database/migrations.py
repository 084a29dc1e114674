"""The way of one kind of database to this version's schema, whole or not at all, and the id that it has for ever."""

from __future__ import annotations

import importlib
import re
import uuid
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, MetaData, Table, column, inspect, select, table, text
from sqlalchemy.exc import SQLAlchemyError

from emq_ops.database.engine import Database
from emq_ops.database.errors import DatabaseError
from emq_ops.database.faults import is_missing_table
from emq_ops.database.statements import insert

if TYPE_CHECKING:
    from alembic.script import ScriptDirectory


@dataclass(frozen=True)
class Migrations:
    """`package`: the import package whose folder `migrations` holds alembic's scripts; `version_table`: where the
    revision stands; `lock`: the key of the advisory lock under which a PostgreSQL is upgraded; `identity`: the table
    (name, value) that holds the database's id."""

    package: str
    version_table: str
    lock: int
    metadata: MetaData
    identity: Table

    @cached_property
    def head(self) -> str:
        """The revision of this version's schema: that of the last script, ``v<revision>_<name>.py``."""
        names = (entry.name for entry in self.folder.joinpath("versions").iterdir())
        return max(match[1] for name in names if (match := re.fullmatch(r"v(\d{4})_\w+\.py", name)))

    @property
    def folder(self) -> Traversable:
        """Where the scripts are."""
        return resources.files(self.package).joinpath("migrations")

    def open(self, database: Database) -> str:
        """Brings the database up where needed and returns its id, which is made once. One query where there is nothing
        to do. Raises DatabaseError (a newer schema among others), DatabaseUnreachableError."""
        version, found = self._look(database)
        if version != self.head:
            self.upgrade(database)
        if version == self.head and found is not None:
            return found
        fresh = {"name": "state", "value": str(uuid.uuid4())}
        with database.write() as connection:
            connection.execute(insert(connection, self.identity).values(fresh).on_conflict_do_nothing())
            return str(connection.execute(self._id).scalar_one())

    @property
    def _id(self) -> Any:
        return select(self.identity.c.value).where(self.identity.c.name == "state")

    @property
    def _version(self) -> Any:
        return select(column("version_num")).select_from(table(self.version_table))

    def _look(self, database: Database) -> tuple[str | None, str | None]:
        """Revision and id; None, None for a database that has not both tables."""
        with database.read() as connection:
            try:
                row = connection.execute(self._version.add_columns(self._id.scalar_subquery())).first()
            except SQLAlchemyError as fault:
                if not is_missing_table(fault):
                    raise
                return None, None
        return (None, None) if row is None else (str(row[0]), row[1])

    def current(self, connection: Connection) -> str | None:
        """The revision that a database is at, None for an empty one."""
        if not inspect(connection).has_table(self.version_table):
            return None
        found = connection.execute(self._version).scalar()
        return None if found is None else str(found)

    def upgrade(self, database: Database, directory: ScriptDirectory | None = None) -> None:
        """Brings the database up in one transaction under a lock: killed anywhere, it stands where it stood; several
        processes at once are fine. `directory`: other scripts than those that ship.

        Raises DatabaseError for a revision that this version does not know, and as `open`.
        """
        scripts = importlib.import_module("emq_ops.database.scripts")  # with alembic, which hardly any start needs
        if directory is None:
            directory = scripts.directory_of(str(self.folder))
        head = directory.get_current_head()
        with database.write() as connection:
            if database.shared:
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": self.lock})
            at = self.current(connection)  # another process may have been quicker
            if at == head:
                return
            if at is not None and at not in {script.revision for script in directory.walk_revisions()}:
                raise DatabaseError(
                    f"the {database.profile.name} is of a newer version of emq-ops (schema {at})",
                    where=database.where,
                    fix=f"use that version, or another {database.profile.option}",
                )
            scripts.run(connection, directory, self.version_table, self.metadata)

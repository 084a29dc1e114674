"""What was deleted leaves the database's files too: free pages, dead rows, SQLite's write-ahead log."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from emq_ops.database.engine import Database
from emq_ops.database.faults import as_ours
from emq_ops.database.profile import shown
from emq_ops.database.sqlite import empty_wal
from emq_ops.protocol.errors import EmqError


def delete_securely(connection: Connection) -> None:
    """What this connection deletes is overwritten at once (SQLite; PostgreSQL's rows go with `scrub`)."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("PRAGMA secure_delete=ON").close()


def scrub(database: Database, tables: Iterable[str]) -> list[str]:
    """Rewrites the file (SQLite) or `tables` (PostgreSQL) without what was ever deleted, and empties SQLite's log.
    Others may read and write; they wait meanwhile. Returns what could not be done, a sentence each."""
    notes: list[str] = []
    try:
        if database.shared:
            _vacuum_postgres(database, tables)
        else:
            _vacuum_sqlite(database)
    except EmqError as fault:
        notes.append(f"deleted rows may still stand in free pages of {database.where}: {fault}; run it again")
    if not database.shared:
        try:
            empty_wal(database.engine, database.profile)
        except EmqError as fault:
            notes.append(f"{fault}; run it again")
    else:
        notes.append(
            f"{database.where}: the server's own WAL and backups keep what was written until they are recycled"
        )
    return notes


def _vacuum_sqlite(database: Database) -> None:
    raw = database.engine.raw_connection()
    try:
        cursor = raw.cursor()
        cursor.execute("PRAGMA secure_delete=ON").fetchall()
        cursor.execute("VACUUM")
    except sqlite3.Error as fault:
        raise EmqError(f"it could not be rewritten: {fault}", where=shown(database.engine.url)) from fault
    finally:
        raw.close()


def _vacuum_postgres(database: Database, tables: Iterable[str]) -> None:
    try:
        with database.engine.connect() as connection:
            outside = connection.execution_options(isolation_level="AUTOCOMMIT")
            quote = connection.dialect.identifier_preparer.quote
            for table in tables:
                outside.exec_driver_sql(f"VACUUM (FULL) {quote(table)}")
    except SQLAlchemyError as fault:
        raise as_ours(fault, database.where, database.profile) from fault

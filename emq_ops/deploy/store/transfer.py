"""The state as a file: export and import between SQLite and PostgreSQL, and backup of a running one.

The export is JSON lines: a head (format, schema, state), then a line a row: ``[table, {column: value}]``; bytes are
``{"base64": ...}``. An import fills a fresh state, keeps the state's UUID, and with it the queues that it owns.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import sqlite3
from pathlib import Path
from typing import IO, Any

from sqlalchemy import Connection, MetaData, Table, func, insert, inspect, select, text

from emq_ops.database.errors import DatabaseError
from emq_ops.deploy.store.lock import StateLock
from emq_ops.ledger import schema
from emq_ops.ledger.deploy_schema import revisions, state_lock
from emq_ops.ledger.ledger import STATE, Ledger
from emq_ops.ledger.ownership import database_id, note_succession
from emq_ops.ledger.schema import deaths, runs
from emq_ops.protocol import files
from emq_ops.protocol.errors import BadInputError

FORMAT, VERSION = "emq-ops/state", 1
_PAGE = 500
_SKIPPED = (STATE.version_table, state_lock.name)


def _tables(connection: Connection) -> list[Table]:
    """Every table of the database, those that others refer to first."""
    found = MetaData()
    found.reflect(bind=connection)
    return [table for table in found.sorted_tables if table.name not in _SKIPPED]


def _plain(value: Any) -> Any:
    return (
        {"base64": base64.b64encode(bytes(value)).decode("ascii")} if isinstance(value, bytes | memoryview) else value
    )


def _value(value: Any) -> Any:
    return base64.b64decode(value["base64"]) if isinstance(value, dict) else value


def export(ledger: Ledger, path: Path) -> dict[str, int]:
    """Writes the whole state, as of one moment; answers rows a table. Raises LockedError while somebody applies."""
    lock = StateLock(ledger, "export")
    lock.take()
    try:
        return _export(ledger, path, database_id(ledger))
    finally:
        with ledger.write() as connection:
            lock.give_up(connection)


def _export(ledger: Ledger, path: Path, database: str = "") -> dict[str, int]:
    """`database`: whose place an import of it takes without more ado; a backup's does not."""
    counts: dict[str, int] = {}
    with ledger.read() as connection, files.written(path) as file:
        if ledger.shared:
            connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
        head = {"format": FORMAT, "version": VERSION, "schema": STATE.current(connection), "state": ledger.state}
        head["database"] = database
        file.write(json.dumps(head) + "\n")
        for table in _tables(connection):
            counts[table.name] = 0
            for row in connection.execute(select(table)).mappings():
                line = [table.name, {name: _plain(value) for name, value in row.items()}]
                file.write(json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n")
                counts[table.name] += 1
    return counts


def load(ledger: Ledger, path: Path) -> dict[str, int]:
    """Fills a fresh state from an export, in one transaction; returns rows a table. The ledger must be opened anew
    afterwards: it is another state then.

    Raises BadInputError for a file that is none, DatabaseError for a used state.
    """
    where = str(path)
    try:
        with path.open(encoding="utf-8") as file, ledger.write() as connection:
            head = _head(file.readline(), where)
            if head["schema"] != STATE.current(connection):
                raise BadInputError(
                    f"the export is of schema {head['schema']}, this version has {STATE.current(connection)}",
                    where=where,
                    fix="export and import with one version of emq-ops",
                )
            _require_fresh(ledger, connection)
            counts = _fill(connection, file, where)
            if head.get("database"):
                note_succession(connection, str(head["database"]))
            return counts
    except OSError as fault:
        raise BadInputError(f"can't read: {fault.strerror}", where=where) from None
    except UnicodeDecodeError:
        raise BadInputError("no exported state", where=where, fix="`emq-ops state export FILE` makes one") from None


def _head(line: str, where: str) -> dict[str, Any]:
    try:
        head = json.loads(line)
    except (ValueError, RecursionError):
        head = None
    if not isinstance(head, dict) or head.get("format") != FORMAT or head.get("version") != VERSION:
        raise BadInputError("no exported state", where=where, fix="`emq-ops state export FILE` makes one")
    return head


def _require_fresh(ledger: Ledger, connection: Connection) -> None:
    for table in (revisions, runs, deaths):
        if connection.execute(select(func.count()).select_from(table)).scalar():
            raise DatabaseError(
                f"the state has {table.name} already", where=ledger.where, fix="import into a new, empty database"
            )


def _fill(connection: Connection, file: IO[str], where: str) -> dict[str, int]:
    tables = {table.name: table for table in _tables(connection)}
    connection.execute(schema.identity.delete())
    counts: dict[str, int] = {}
    page: list[dict[str, Any]] = []
    name = ""

    def flush() -> None:
        if page:
            connection.execute(insert(tables[name]), page)
            counts[name] = counts.get(name, 0) + len(page)
            page.clear()

    for number, line in enumerate(file, 2):
        try:
            table, row = json.loads(line)
            values = {column: _value(value) for column, value in row.items()}
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
            raise BadInputError(f"line {number} is no row: the file is cut off or damaged", where=where) from None
        if not isinstance(table, str) or table not in tables:
            raise BadInputError(f"line {number} is of an unknown table", where=where)
        if table != name or len(page) >= _PAGE:
            flush()
            name = table
        if unknown := values.keys() - tables[table].c.keys():
            raise BadInputError(f"line {number} has the unknown column {min(unknown)}", where=where)
        page.append(values)
    flush()
    if connection.dialect.name == "postgresql":
        _advance_sequences(connection, tables)
    return counts


def _advance_sequences(connection: Connection, tables: dict[str, Table]) -> None:
    """Rows came with their numbers; the next one that the database gives must be above them."""
    look = inspect(connection)
    for name in tables:
        for column in look.get_columns(name):
            sequence = connection.execute(
                text("SELECT pg_get_serial_sequence(:table, :column)"), {"table": name, "column": column["name"]}
            ).scalar()
            if sequence is not None:
                highest = func.coalesce(func.max(tables[name].c[column["name"]]), 0) + 1
                top = connection.execute(select(highest)).scalar_one()
                connection.execute(text("SELECT setval(:sequence, :top, false)"), {"sequence": sequence, "top": top})


def backup(ledger: Ledger, path: Path) -> None:
    """A copy of the state while it is in use, consistent: of SQLite a database file, of PostgreSQL an export."""
    if ledger.shared:
        _export(ledger, path)
        return
    real = files.regular(path)
    part = None
    try:
        fd, part = files.temporary_beside(real)
        files.settle(fd)
        os.close(fd)
        with contextlib.closing(sqlite3.connect(part)) as copy, ledger.read() as connection:
            raw = connection.connection.driver_connection
            assert isinstance(raw, sqlite3.Connection)
            raw.backup(copy, pages=2000)
        os.replace(part, real)
    except (OSError, sqlite3.Error) as fault:
        if part is not None:
            with contextlib.suppress(OSError):
                os.unlink(part)
        raise BadInputError(f"can't write the backup: {fault}", where=str(path)) from None

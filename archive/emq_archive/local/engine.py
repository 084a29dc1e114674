"""Connections to the local database: SQLite (one host's) or PostgreSQL, and its faults as our errors.

SQLite: WAL, synchronous FULL, a busy timeout and foreign keys on every pooled connection; a writing transaction takes
the write lock when it begins, so that it can't fail half-way for having read first. PostgreSQL: every wait is bounded,
also for a server that hangs.
"""

from __future__ import annotations

import contextlib
import importlib
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from emq_archive import pgfaults
from emq_archive.database import to_wal, watch_file
from emq_archive.deadline import NEVER, Deadline
from emq_archive.errors import ArchiveError, DiskFullError, LocalError, LocalUnreachableError
from emq_ops.protocol.errors import BadInputError, EmqError

BUSY_SECONDS = 30.0
"""How long a connection waits for another writer, if no deadline is nearer."""
STATEMENT_SECONDS = 120.0
IDLE_SECONDS = 600
"""How long a transaction may do nothing (while a segment is sent, say): a frozen process keeps no lock for ever."""


def parse_url(url: str) -> URL:
    """`url` checked: ``sqlite:///file`` or ``postgresql://...``. Raises BadInputError."""
    fix = "sqlite:///archive.db or postgresql://host/name"
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise BadInputError("this is no database URL", where="--local", fix=fix) from None
    backend = parsed.get_backend_name()
    if backend in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    if backend != "sqlite":
        raise BadInputError(f"no local database on '{backend}'", fix=fix)
    if not parsed.database or parsed.database == ":memory:":
        raise BadInputError("the local database must outlive the process", where=url, fix="name a file")
    try:
        parsed.get_dialect()().create_connect_args(parsed)
    except (ArgumentError, ValueError) as fault:
        raise BadInputError(f"options that can't be taken: {fault}", where=url, fix="see what follows the ?") from None
    return parsed


def shown(url: URL) -> str:
    """The URL as users write it, without its password."""
    return url.set(drivername=url.get_backend_name()).render_as_string(hide_password=True)


def open_engine(url: str) -> Engine:
    """An engine for `url`; makes the folder of a SQLite file. Raises BadInputError, LocalError."""
    parsed = parse_url(url)
    if parsed.get_backend_name() == "sqlite":
        return _sqlite(parsed)
    settings = {
        "idle_in_transaction_session_timeout": IDLE_SECONDS * 1000,
        "default_transaction_isolation": "read\\ committed",
    }
    # The driver takes long to import, and SQLite is the usual case.
    postgres = importlib.import_module("emq_archive.postgres")
    engine: Engine = postgres.open_postgres(parsed, "emq-ops archive", most=STATEMENT_SECONDS, settings=settings)
    return engine


def _sqlite(url: URL) -> Engine:
    path = Path(str(url.database)).expanduser()
    plain = not str(url.database).startswith("file:")
    if plain:
        try:
            path.absolute().parent.mkdir(parents=True, exist_ok=True)
        except OSError as fault:
            raise LocalError(
                f"can't make the folder: {fault.strerror}", where=str(path.parent), fix="check path and rights"
            ) from fault
        url = url.set(database=str(path))
    engine = create_engine(url, connect_args={"timeout": BUSY_SECONDS, "check_same_thread": False})

    @event.listens_for(engine, "connect")
    def _connected(raw: Any, _record: Any) -> None:
        raw.isolation_level = None  # BEGIN is ours to say, see below
        raw.execute(f"PRAGMA busy_timeout={int(BUSY_SECONDS * 1000)}")
        to_wal(raw, BUSY_SECONDS)
        raw.execute("PRAGMA synchronous=FULL")
        raw.execute("PRAGMA foreign_keys=ON")

    @event.listens_for(engine, "begin")
    def _begun(connection: Connection) -> None:
        options = connection.get_execution_options()
        if not options.get("emq_writes"):
            connection.exec_driver_sql("BEGIN")
            return
        wait = min(float(options.get("emq_seconds", BUSY_SECONDS)), BUSY_SECONDS)
        connection.exec_driver_sql(f"PRAGMA busy_timeout={max(1, int(wait * 1000))}")
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    if plain:
        where = shown(url)
        watch_file(engine, path, lambda: _gone(where))
    return engine


def _gone(where: str) -> ArchiveError:
    return LocalError(
        "the file of the local database was deleted or replaced in use",
        where=where,
        fix="end what uses it, then put it back or run `emq-ops archive restore`",
    )


@contextlib.contextmanager
def transaction(engine: Engine, *, writes: bool, deadline: Deadline = NEVER) -> Iterator[Connection]:
    """One transaction; committed at the end, rolled back on any error, which leaves as one of ours. With `writes` it
    holds SQLite's write lock from its beginning."""
    deadline.check("the local database was asked")
    seconds = deadline.left(STATEMENT_SECONDS)
    try:
        with engine.connect() as connection, _bounded(connection, deadline):
            connection = connection.execution_options(emq_writes=writes, emq_seconds=seconds)
            with connection.begin():
                if connection.dialect.name == "postgresql":
                    limit = max(1, int(seconds * 1000))
                    connection.exec_driver_sql(f"SET LOCAL statement_timeout = {limit}")
                yield connection
    except SQLAlchemyError as fault:
        raise as_ours(fault, shown(engine.url)) from fault
    except OverflowError:  # SQLite's driver, of a number beyond 64 bits
        raise BadInputError("a number is too large for the local database", where=shown(engine.url)) from None


def scrub(engine: Engine) -> None:
    """Moves SQLite's write-ahead log into the file and empties it; waits for readers a second."""
    if engine.dialect.name != "sqlite":
        return
    raw = engine.raw_connection()
    try:
        for pragma in ("busy_timeout=1000", "wal_checkpoint(TRUNCATE)", f"busy_timeout={int(BUSY_SECONDS * 1000)}"):
            raw.cursor().execute(f"PRAGMA {pragma}").fetchall()
    except sqlite3.Error as fault:
        raise LocalError(f"the write-ahead log could not be emptied: {fault}", where=shown(engine.url)) from fault
    finally:
        raw.close()


@contextlib.contextmanager
def _bounded(connection: Connection, deadline: Deadline) -> Iterator[None]:
    """No wait for PostgreSQL inside lasts longer than the deadline."""
    left = deadline.left()
    if connection.dialect.name != "postgresql" or left == float("inf"):
        yield
        return
    raw: Any = connection.connection.dbapi_connection
    raw.until = time.monotonic() + left
    try:
        yield
    finally:
        raw.until = None


def as_ours(fault: SQLAlchemyError, where: str) -> EmqError:
    """A fault of the database as one of our errors, told apart by its code."""
    cause = fault.orig if isinstance(fault, DBAPIError) else None
    lines = str(cause or fault).splitlines()
    said = lines[0] if lines else type(fault).__name__
    name = str(getattr(cause, "sqlite_errorname", ""))
    for prefix, make in _SQLITE.items():
        if name.startswith(prefix):
            return make(said, where)
    told = pgfaults.tell(fault) if not name else None
    if told is None:
        return LocalError(said, where=where, fix="this is a fault of the local database; see its log")
    if told.kind == "full":
        return _full(said, where)
    kind = LocalUnreachableError if told.kind == "away" else LocalError
    return kind(told.what, where=where, fix=told.fix)


def _full(said: str, where: str) -> ArchiveError:
    return DiskFullError(
        f"no room on the disk of the local database ({said})",
        where=where,
        fix="make room there; nothing of this batch was kept, and nothing is trimmed",
    )


def _locked(said: str, where: str) -> ArchiveError:
    return LocalError(f"another process keeps the database locked ({said})", where=where, fix="wait, or end it")


def _read_only(said: str, where: str) -> ArchiveError:
    return LocalError(f"the database is read-only ({said})", where=where, fix="check the rights of file and folder")


def _damaged(said: str, where: str) -> ArchiveError:
    return LocalError(
        f"damaged, or no SQLite database ({said})",
        where=where,
        fix="move it away and run `emq-ops archive restore`",
    )


def _cant_open(said: str, where: str) -> ArchiveError:
    return LocalError(f"can't open the database file ({said})", where=where, fix="check path and rights")


_SQLITE = {
    "SQLITE_BUSY": _locked,
    "SQLITE_LOCKED": _locked,
    "SQLITE_FULL": _full,
    "SQLITE_IOERR_WRITE": _full,
    "SQLITE_READONLY": _read_only,
    "SQLITE_NOTADB": _damaged,
    "SQLITE_CORRUPT": _damaged,
    "SQLITE_CANTOPEN": _cant_open,
}

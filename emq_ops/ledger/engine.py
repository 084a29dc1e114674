"""Connections to the state database: SQLite (one host) or PostgreSQL (several), and its faults as our errors.

SQLite: WAL, synchronous FULL, a busy timeout and foreign keys on every pooled connection; a writing transaction takes
the write lock when it begins, so that it can't fail half-way for having read first. PostgreSQL: every wait is bounded,
and a process that was frozen in a transaction keeps no lock for long.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from emq_archive import pgfaults
from emq_archive.database import to_wal, watch_file
from emq_ops.ledger.errors import LedgerError, LedgerFullError, LedgerLockedError, LedgerUnreachableError
from emq_ops.protocol.connection.url import redact
from emq_ops.protocol.deadline import check, remaining, within
from emq_ops.protocol.errors import BadInputError

BUSY_MS = 10_000
"""How long a connection waits for another writer."""
ROOMY_KIB = 65_536
"""What a connection may keep of a SQLite file in memory while it changes very many rows."""
STATEMENT_MS = 30_000
"""How long PostgreSQL may take over one statement, or wait for a lock."""
IDLE_MS = 60_000
"""How long a transaction may do nothing: a frozen process must not keep the others from what it locked."""


def parse_url(url: str) -> URL:
    """`url` checked: ``sqlite:///file`` or ``postgresql://...``. Raises BadInputError."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise BadInputError(
            "no database URL", where=redact(url), fix="sqlite:///state.db or postgresql://host/name"
        ) from None
    backend = parsed.get_backend_name()
    if backend in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    if backend != "sqlite":
        raise BadInputError(f"no state database on '{backend}'", fix="sqlite:///state.db or postgresql://host/name")
    if not parsed.database or parsed.database == ":memory:":
        raise BadInputError(
            "a state must outlive the process", where=redact(url), fix="name a file: sqlite:///state.db"
        )
    try:
        parsed.get_dialect()().create_connect_args(parsed)
    except (ArgumentError, ValueError) as fault:
        raise BadInputError(
            f"options that can't be taken: {fault}", where=redact(url), fix="see what follows the ?"
        ) from None
    return parsed


def shown(url: URL | str) -> str:
    """The URL as users write it, without its password."""
    parsed = make_url(url) if isinstance(url, str) else url
    return parsed.set(drivername=parsed.get_backend_name()).render_as_string(hide_password=True)


def open_engine(url: str, *, busy_ms: int = BUSY_MS) -> Engine:
    """An engine for `url`; makes the folder of a SQLite file. No connection is tried yet, but for that folder.

    Raises BadInputError, LedgerError.
    """
    parsed = parse_url(url)
    if parsed.get_backend_name() == "sqlite":
        return _sqlite(parsed, busy_ms)
    settings = {
        "statement_timeout": STATEMENT_MS,
        "lock_timeout": min(busy_ms, STATEMENT_MS),
        "idle_in_transaction_session_timeout": IDLE_MS,
        "default_transaction_isolation": "read\\ committed",
    }
    # The driver takes long to import, and SQLite is the usual case.
    postgres = importlib.import_module("emq_archive.postgres")
    engine: Engine = postgres.open_postgres(
        parsed, "emq-ops", most=STATEMENT_MS / 1000, settings=settings, pool_size=8, max_overflow=24
    )
    return engine


def _sqlite(url: URL, busy_ms: int) -> Engine:
    path: Path | None = None
    if "uri" not in url.query:  # with it the database is a file: URI, for SQLite alone to read
        path = Path(str(url.database)).expanduser()
        try:
            path.absolute().parent.mkdir(parents=True, exist_ok=True)
        except OSError as fault:
            raise LedgerError(
                f"can't make the folder {path.parent}: {fault.strerror}", fix="check the path and rights"
            ) from fault
        url = url.set(database=str(path))
    engine = create_engine(url, connect_args={"timeout": busy_ms / 1000, "check_same_thread": False})

    @event.listens_for(engine, "connect")
    def _connected(raw: Any, _record: Any) -> None:
        raw.isolation_level = None  # we say BEGIN ourselves, see below
        cursor = raw.cursor()
        cursor.execute(f"PRAGMA busy_timeout={busy_ms}")
        to_wal(cursor, busy_ms / 1000)
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begun(connection: Connection) -> None:
        wait = int(1000 * (within(busy_ms / 1000) or 0))
        if connection.info.get("busy_ms", busy_ms) != wait:
            connection.exec_driver_sql(f"PRAGMA busy_timeout={wait}")
            connection.info["busy_ms"] = wait
        writes = connection.get_execution_options().get("emq_writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    if path is not None:
        where = shown(url)
        watch_file(engine, path, lambda: _gone("the file is no longer the one that was opened", where))
    return engine


def _gone(said: str, where: str) -> LedgerError:
    return LedgerError(
        f"not a whole state database ({said}): was it deleted or replaced in use?",
        where=where,
        fix="end what uses it, and put a backup in its place",
    )


@contextlib.contextmanager
def transaction(engine: Engine, *, writes: bool) -> Iterator[Connection]:
    """One transaction; committed at the end, rolled back on any error, which leaves as one of ours. It waits no longer
    than the caller's deadline (`emq_ops.protocol.deadline`)."""
    where = shown(engine.url)
    check(where)
    try:
        with engine.connect() as connection:
            if writes:
                connection = connection.execution_options(emq_writes=True)
            with connection.begin():
                left = remaining()
                if left is not None and engine.dialect.name == "postgresql":
                    connection.exec_driver_sql(f"SET LOCAL statement_timeout = {max(1, int(1000 * left))}")
                yield connection
    except SQLAlchemyError as fault:
        raise as_ours(fault, where) from fault
    except OverflowError:  # SQLite's driver, of a number beyond 64 bits
        raise BadInputError("a number is too large for the state database", where=where) from None


@contextlib.contextmanager
def roomy(connection: Connection) -> Iterator[None]:
    """For a statement that changes very many rows: with SQLite's own 2 MB of cache the pages of its indexes go to disk
    and come back over and over. The memory is given back at the end."""
    if connection.dialect.name != "sqlite":
        yield
        return
    usual = connection.exec_driver_sql("PRAGMA cache_size").scalar_one()
    connection.exec_driver_sql(f"PRAGMA cache_size=-{ROOMY_KIB}")
    try:
        yield
    finally:
        connection.exec_driver_sql(f"PRAGMA cache_size={usual}")
        connection.exec_driver_sql("PRAGMA shrink_memory")


def as_ours(fault: SQLAlchemyError, where: str) -> LedgerError | LedgerUnreachableError:
    """The fault of a database as one of our errors, told apart by its code."""
    cause = fault.orig if isinstance(fault, DBAPIError) else None
    said = str(cause or fault).splitlines()[0] if str(cause or fault) else type(fault).__name__
    name = str(getattr(cause, "sqlite_errorname", ""))
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return LedgerLockedError("another process keeps the database locked", where=where, fix="wait, or end it")
    if name.startswith("SQLITE_FULL"):
        return LedgerFullError("no room on the disk", where=where, fix="make room; nothing was lost")
    if name.startswith("SQLITE_READONLY"):
        return LedgerError("the database is read-only", where=where, fix="check the rights of the file and its folder")
    if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
        return LedgerError(f"damaged, or no SQLite database ({said})", where=where, fix="restore it from a backup")
    if name.startswith("SQLITE_CANTOPEN"):
        return LedgerError("can't open the database file", where=where, fix="check the path and rights")
    if name == "SQLITE_ERROR" and said.startswith("no such table"):
        return _gone(said, where)
    told = pgfaults.tell(fault) if not name else None
    if told is None:
        return LedgerError(said, where=where, fix="this is a fault of the state database; see its log")
    return _KINDS[told.kind](told.what, where=where, fix=told.fix)


_KINDS: dict[pgfaults.Kind, type[LedgerError] | type[LedgerUnreachableError]] = {
    "away": LedgerUnreachableError,
    "full": LedgerFullError,
    "locked": LedgerLockedError,
    "refused": LedgerError,
}

"""SQLite: WAL, synchronous FULL, a busy timeout and foreign keys on every pooled connection.

A writing transaction takes the write lock when it begins, so that it can't fail half-way for having read first.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL

from emq_ops.database import faults
from emq_ops.database.errors import DatabaseError
from emq_ops.database.profile import Profile, shown
from emq_ops.protocol import files
from emq_ops.protocol.deadline import within
from emq_ops.protocol.errors import EmqError

ROOMY_KIB = 65_536
"""What a connection may keep of the file in memory while it changes very many rows."""
WAL_BYTES = 8 * 1024 * 1024
"""What the write-ahead log is cut back to once it was moved into the file, however large one transaction made it."""


def open_sqlite(url: URL, profile: Profile) -> Engine:
    """An engine; makes the folder of the file. Raises DatabaseError."""
    path: Path | None = None
    if "uri" not in url.query:  # with it the database is a file: URI, for SQLite alone to read
        path = Path(str(url.database)).expanduser()
        try:
            files.make_private(path.absolute().parent)
        except OSError as fault:
            told = f"can't make the folder: {fault.strerror}"
            raise DatabaseError(told, where=str(path.parent), fix="check the path and rights") from fault
        with contextlib.suppress(OSError):  # it is there, or SQLite says what is wrong
            os.close(files.create_privately(path))
        for name in ("", "-wal", "-shm", "-journal"):
            files.tighten(f"{path}{name}")
        url = url.set(database=str(path))
    engine = create_engine(url, connect_args={"timeout": profile.busy, "check_same_thread": False})
    busy_ms = int(1000 * profile.busy)

    @event.listens_for(engine, "connect")
    def _connected(raw: Any, _record: Any) -> None:
        raw.isolation_level = None  # we say BEGIN ourselves, see below
        cursor = raw.cursor()
        cursor.execute(f"PRAGMA busy_timeout={busy_ms}")
        if not cursor.execute("PRAGMA page_count").fetchone()[0]:  # an old file takes it when it is rewritten
            cursor.execute("PRAGMA auto_vacuum=INCREMENTAL")
        cursor.execute(f"PRAGMA journal_size_limit={WAL_BYTES}").fetchall()
        to_wal(cursor, profile.busy)
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begun(connection: Connection) -> None:
        options = connection.get_execution_options()
        wait = int(1000 * (within(options.get("emq_wait", profile.busy)) or 0))
        if connection.info.get("busy_ms", busy_ms) != wait:
            connection.exec_driver_sql(f"PRAGMA busy_timeout={wait}")
            connection.info["busy_ms"] = wait
        connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get("emq_writes") else "BEGIN")

    if path is not None:
        where = shown(url)
        watch_file(engine, path, lambda: faults.lost("the file is no longer the one that was opened", where, profile))
    return engine


def to_wal(cursor: Any, seconds: float) -> None:
    """WAL mode on a connection. Changing it while another process does the same, or closes as the last one, fails at
    once, whatever the busy timeout says: so it is tried again for `seconds`.

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
    """Sees to it that an engine goes on with the file it began with, and makes no new one in the place of one that was
    deleted or replaced: what was written there would be lost, or begin another history. A connection then raises what
    `gone` makes. To be called before the first connection."""
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


@contextlib.contextmanager
def roomy(connection: Connection) -> Iterator[None]:
    """For a statement that changes very many rows: with SQLite's own 2 MB of cache the pages of its indexes go to disk
    and come back over and over. The memory is given back at the end. PostgreSQL needs none of this."""
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


def empty_wal(engine: Engine, profile: Profile) -> None:
    """Moves SQLite's write-ahead log into the file and empties it; waits for readers a second. Raises DatabaseError."""
    if engine.dialect.name != "sqlite":
        return
    raw = engine.raw_connection()
    try:
        for pragma in ("busy_timeout=1000", "wal_checkpoint(TRUNCATE)", f"busy_timeout={int(profile.busy * 1000)}"):
            raw.cursor().execute(f"PRAGMA {pragma}").fetchall()
    except sqlite3.Error as fault:
        told = f"the write-ahead log could not be emptied: {fault}"
        raise DatabaseError(told, where=shown(engine.url)) from fault
    finally:
        raw.close()

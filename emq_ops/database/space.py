"""Free pages go back to the file system: SQLite keeps what was deleted, PostgreSQL's autovacuum sees to its own."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import Any

from emq_ops.database.engine import Database
from emq_ops.database.errors import DatabaseError
from emq_ops.database.sqlite import empty_wal
from emq_ops.protocol import deadline
from emq_ops.protocol.errors import DeadlineError

STEP_PAGES = 500
"""Given back in one short transaction, so that no writer waits long."""
SPARE_BYTES = 1 << 20
"""So much stays free: what was given back is soon asked for again."""
WORTH_BYTES = 16 << 20
"""A file of an earlier version can't give back in steps. It is rewritten once, where that gives back so much and more
than half of the file."""


def give_back(database: Database) -> int:
    """Returns how many bytes the file is smaller, or will be at the next checkpoint. Ends by the caller's deadline; the
    next call goes on. Nothing for PostgreSQL. Raises DatabaseError."""
    if database.shared:
        return 0
    raw = database.engine.raw_connection()
    try:
        cursor: Any = raw.cursor()
        size, free, pages = (_number(cursor, name) for name in ("page_size", "freelist_count", "page_count"))
        if _number(cursor, "auto_vacuum") != 2:
            if free * size < WORTH_BYTES or free < pages / 2:
                return 0
            cursor.execute("PRAGMA auto_vacuum=INCREMENTAL")
            cursor.execute("VACUUM")
        else:
            spare = SPARE_BYTES // size
            with contextlib.suppress(DeadlineError):
                while (left := _number(cursor, "freelist_count")) > spare:
                    deadline.check("giving free space back")
                    cursor.execute(f"PRAGMA incremental_vacuum({min(STEP_PAGES, left - spare)})").fetchall()
        gone = (pages - _number(cursor, "page_count")) * size
    except sqlite3.Error as fault:
        raise DatabaseError(f"free space could not be given back: {fault}", where=database.where) from fault
    finally:
        raw.close()
    if gone:
        with contextlib.suppress(DatabaseError):  # readers are at work: the next checkpoint does it
            empty_wal(database.engine, database.profile)
    return gone


def _number(cursor: Any, pragma: str) -> int:
    return int(cursor.execute(f"PRAGMA {pragma}").fetchone()[0])

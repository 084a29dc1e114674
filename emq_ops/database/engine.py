"""`Database`: an open database and its transactions."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, Self

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from emq_ops.database.errors import DatabaseError
from emq_ops.database.faults import as_ours, lost
from emq_ops.database.profile import Profile, shown
from emq_ops.database.sqlite import open_sqlite
from emq_ops.protocol.deadline import check, within
from emq_ops.protocol.errors import BadInputError, one_line
from emq_ops.protocol.extras import need

__all__ = ["Connection", "Database", "open_database"]


PROVEN_BYTES = 256 * 1024 * 1024
"""A larger SQLite file is not gone through when somebody just looks."""


class _UndoneError(Exception):
    """What was written in this transaction is to be rolled back."""


class Database:
    """A database that is open. `where`: its URL without secrets.

    Thread-safe. A forked child must open its own.
    """

    def __init__(self, engine: Engine, profile: Profile) -> None:
        self.engine = engine
        self.profile = profile
        self.where = shown(engine.url)

    @property
    def shared(self) -> bool:
        """Whether several hosts can use it."""
        return self.engine.dialect.name == "postgresql"

    def read(self, seconds: float | None = None) -> contextlib.AbstractContextManager[Connection]:
        """A reading transaction: one consistent sight."""
        return self._transaction(False, seconds)

    def write(self, seconds: float | None = None) -> contextlib.AbstractContextManager[Connection]:
        """A writing transaction; on SQLite it holds the write lock from its beginning."""
        return self._transaction(True, seconds)

    def proven(self) -> None:
        """Proves that it can be read whole and written to, and changes nothing. A SQLite file of up to PROVEN_BYTES is
        gone through, page by page. Raises DatabaseError, DatabaseUnreachableError."""
        if not self.shared:
            with self.read() as connection:
                pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
                size = pages * connection.exec_driver_sql("PRAGMA page_size").scalar_one()
                told = (
                    connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one() if size <= PROVEN_BYTES else "ok"
                )
            if told != "ok":
                raise lost(one_line(str(told)), self.where, self.profile)
        with contextlib.suppress(_UndoneError), self.write() as connection:
            if self.shared:  # a table could not be made with rights to rows alone
                if connection.exec_driver_sql("SHOW transaction_read_only").scalar_one() == "on":
                    raise DatabaseError(f"the {self.profile.name} takes no writes: it is read-only", where=self.where)
                return
            connection.exec_driver_sql("CREATE TABLE emq_ops_proof (proof INTEGER)")
            raise _UndoneError

    def clock_ms(self) -> int | None:
        """The clock of its server, unix ms; None for a file."""
        if not self.shared:
            return None
        with self.read() as connection:
            return int(connection.exec_driver_sql("SELECT extract(epoch FROM clock_timestamp()) * 1000").scalar_one())

    @contextlib.contextmanager
    def _transaction(self, writes: bool, seconds: float | None) -> Iterator[Connection]:
        """Committed at the end, rolled back on any error, which leaves as one of ours. It waits no longer than
        `seconds` and the caller's deadline (`emq_ops.protocol.deadline`)."""
        check(self.where)
        options = {"emq_writes": writes} if seconds is None else {"emq_writes": writes, "emq_wait": seconds}
        try:
            with self.engine.connect() as connection, self._cut_after(connection, seconds):
                connection = connection.execution_options(**options)
                with connection.begin():
                    left = within(seconds)
                    if left is not None and self.shared:
                        limit = max(1, int(1000 * min(left, self.profile.statement)))
                        connection.exec_driver_sql(f"SET LOCAL statement_timeout = {limit}")
                    yield connection
        except SQLAlchemyError as fault:
            raise as_ours(fault, self.where, self.profile) from fault
        except OverflowError:  # SQLite's driver, of a number beyond 64 bits
            raise BadInputError(f"a number is too large for the {self.profile.name}", where=self.where) from None

    @contextlib.contextmanager
    def _cut_after(self, connection: Connection, seconds: float | None) -> Iterator[None]:
        """The session to PostgreSQL ends once an answer takes longer; see `postgres.Bounded`."""
        if seconds is None or not self.shared:
            yield
            return
        raw: Any = connection.connection.dbapi_connection
        raw.until = time.monotonic() + seconds
        try:
            yield
        finally:
            raw.until = None

    def close(self) -> None:
        """Gives back every connection."""
        self.engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_database(url: str, profile: Profile, renew: Callable[[], str] | None = None) -> Database:
    """The database at `url`; makes the folder of a SQLite file. No connection is tried yet. `renew`: gives the URL with
    the password that is good now.

    Raises BadInputError, DatabaseError.
    """
    parsed = profile.parse(url)
    if parsed.get_backend_name() == "sqlite":
        return Database(open_sqlite(parsed, profile), profile)
    # The driver takes long to import, and SQLite is the usual case.
    postgres = need("emq_ops.database.postgres")
    again = None if renew is None else lambda: profile.parse(renew())
    return Database(postgres.open_postgres(parsed, profile, again), profile)

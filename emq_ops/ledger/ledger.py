"""`Ledger`: an open state database of this version's schema, with its identity."""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import (
    ARRAY,
    Column,
    ColumnElement,
    Connection,
    Engine,
    String,
    Table,
    any_,
    func,
    literal,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError

from emq_ops.ledger import schema
from emq_ops.ledger.engine import BUSY_MS, as_ours, open_engine, shown, transaction
from emq_ops.ledger.migrate import STATE


class Ledger:
    """One state. `state` is its UUID, which stands in the lease of each queue it owns; `where` its URL without secrets.

    Thread-safe. A forked child must open its own.
    """

    def __init__(self, engine: Engine, state: str) -> None:
        self.engine = engine
        self.state = state
        self.where = shown(engine.url)

    @property
    def shared(self) -> bool:
        """Whether several hosts can use it."""
        return self.engine.dialect.name == "postgresql"

    def read(self) -> contextlib.AbstractContextManager[Connection]:
        """A reading transaction: one consistent sight."""
        return transaction(self.engine, writes=False)

    def write(self) -> contextlib.AbstractContextManager[Connection]:
        """A writing transaction; on SQLite it holds the write lock from its beginning."""
        return transaction(self.engine, writes=True)

    def close(self) -> None:
        """Gives back every connection."""
        self.engine.dispose()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_ledger(url: str, *, busy_ms: int = BUSY_MS) -> Ledger:
    """Opens the state database at `url`, making it or bringing it up to this version where needed.

    Raises BadInputError, LedgerError (read-only, damaged, newer schema), LedgerLockedError, LedgerUnreachableError.
    """
    engine = open_engine(url, busy_ms=busy_ms)
    try:
        STATE.upgrade(engine)
        return Ledger(engine, _state(engine))
    except SQLAlchemyError as fault:
        engine.dispose()
        raise as_ours(fault, shown(engine.url)) from fault
    except BaseException:
        engine.dispose()
        raise


def _state(engine: Engine) -> str:
    wanted = select(schema.identity.c.value).where(schema.identity.c.name == "state")
    with transaction(engine, writes=False) as connection:
        found = connection.execute(wanted).scalar()
    if found is None:
        with transaction(engine, writes=True) as connection:
            fresh = {"name": "state", "value": str(uuid.uuid4())}
            connection.execute(insert(connection, schema.identity).values(fresh).on_conflict_do_nothing())
            found = connection.execute(wanted).scalar_one()
    return str(found)


def adopt_state(ledger: Ledger, state: str) -> bool:
    """Makes this the database of `state`, whose own was lost. Only a database that never led a queue can be: False
    (and nothing changed) otherwise."""
    with ledger.write() as connection:
        if connection.execute(select(schema.tokens.c.queue).limit(1)).first() is not None:
            return False
        connection.execute(update(schema.identity).where(schema.identity.c.name == "state").values(value=state))
    ledger.state = state
    return True


def insert(connection: Connection, table: Table) -> Any:
    """An INSERT that can say ON CONFLICT, whichever of the two databases it is."""
    return (postgresql if connection.dialect.name == "postgresql" else sqlite).insert(table)


def among(connection: Connection, column: Column[Any], values: Sequence[str]) -> ColumnElement[bool]:
    """Whether a column is one of `values`, sent as one parameter: thousands of them cost little, and are no limit."""
    if connection.dialect.name == "postgresql":
        return column == any_(literal(list(values), ARRAY(String)))
    listed = func.json_each(json.dumps(list(values))).table_valued("value")
    return column.in_(select(listed.c.value))


def host_ms() -> int:
    """The host's clock, unix ms: for runs and requests, never for leases."""
    return time.time_ns() // 1_000_000


def pages(values: Any, size: int = 500) -> Iterator[list[Any]]:
    """`values` (a sequence) in lists of at most `size`: databases bound the parameters of one statement."""
    for first in range(0, len(values), size):
        yield list(values[first : first + size])

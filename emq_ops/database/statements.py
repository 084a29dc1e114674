"""What SQLAlchemy says differently for SQLite and PostgreSQL, and lists too long for one statement."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from sqlalchemy import (
    ARRAY,
    VARCHAR,
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Integer,
    RowMapping,
    Select,
    String,
    Table,
    any_,
    func,
    literal,
    select,
)

from emq_ops.database.engine import Database

_T = TypeVar("_T")

# SQLite numbers rows by itself only where the column is exactly INTEGER.
SERIAL = BigInteger().with_variant(Integer(), "sqlite")
# Branded ids sort by byte; PostgreSQL would sort them by the database's locale.
BRANDED_ID = String(14).with_variant(VARCHAR(14, collation="C"), "postgresql")


def insert(connection: Connection, table: Table) -> Any:
    """An INSERT that can say ON CONFLICT, whichever of the two databases it is."""
    dialect = importlib.import_module(f"sqlalchemy.dialects.{connection.dialect.name}")  # that in use is there already
    return dialect.insert(table)


def upsert(connection: Connection, table: Table, values: dict[str, Any] | list[dict[str, Any]]) -> None:
    """Adds rows, all with the same columns; one takes the place of the row with its primary key."""
    new = insert(connection, table)
    keys = [column.name for column in table.primary_key]
    names = values if isinstance(values, dict) else values[0]
    changed = {name: new.excluded[name] for name in names if name not in keys}
    connection.execute(new.on_conflict_do_update(index_elements=keys, set_=changed), values)


def follow(database: Database, wanted: Select[Any], key: Column[Any], page: int = 1000) -> Iterator[RowMapping]:
    """The rows of `wanted` by `key`, a unique column among those selected: bounded pages, each its own transaction."""
    wanted = wanted.order_by(key).limit(page)
    rest = wanted
    while True:
        with database.read() as connection:
            found = connection.execute(rest).mappings().all()
        yield from found
        if len(found) < page:
            return
        rest = wanted.where(key > found[-1][key.name])


def equal(wanted: Select[Any], table: Table, **values: Any) -> Select[Any]:
    """`wanted`, where the columns of these names have these values; None asks for nothing."""
    for name, value in values.items():
        if value is not None:
            wanted = wanted.where(table.c[name] == value)
    return wanted


def among(connection: Connection, column: Column[Any], values: Sequence[str]) -> ColumnElement[bool]:
    """Whether a column is one of `values`, sent as one parameter: thousands of them cost little, and are no limit."""
    if connection.dialect.name == "postgresql":
        return column == any_(literal(list(values), ARRAY(String)))
    listed = func.json_each(json.dumps(list(values))).table_valued("value")
    return column.in_(select(listed.c.value))


def pages(values: Sequence[_T], size: int = 500) -> Iterator[list[_T]]:
    """`values` in lists of at most `size`: databases bound the parameters of one statement."""
    for first in range(0, len(values), size):
        yield list(values[first : first + size])

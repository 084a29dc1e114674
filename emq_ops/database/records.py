"""Rows of a table as values of a dataclass: a field is the column of its name."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection, RowMapping, Select, Table, select

_T = TypeVar("_T")


class AsRow:
    """A dataclass that renderers take as a plain dict."""

    __slots__ = ()

    def as_row(self) -> dict[str, Any]:
        """The fields, in their order."""
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]


class Records(Generic[_T]):
    """How `kind` stands in `table`. `packed`: fields that are JSON in the table. Fields without a column are left to
    their defaults."""

    def __init__(self, table: Table, kind: type[_T], packed: Iterable[str] = ()) -> None:
        self._kind = kind
        self._packed = frozenset(packed)
        self.names = [field.name for field in fields(kind) if field.name in table.c]  # type: ignore[arg-type]
        self.select: Select[Any] = select(*(table.c[name] for name in self.names))

    def of(self, row: RowMapping) -> _T:
        """The value of one row; NULL in a packed column is None."""
        return self._kind(**{name: self._unpacked(name, row[name]) for name in self.names})

    def _unpacked(self, name: str, value: Any) -> Any:
        return json.loads(value) if name in self._packed and value is not None else value

    def all(self, connection: Connection, wanted: Select[Any]) -> list[_T]:
        """Every row of `wanted`, which begins with `select`."""
        return [self.of(row) for row in connection.execute(wanted).mappings()]

    def first(self, connection: Connection, wanted: Select[Any]) -> _T | None:
        """The first row of `wanted`, None where there is none."""
        row = connection.execute(wanted).mappings().first()
        return None if row is None else self.of(row)

    def values(self, one: _T, *, but: Iterable[str] = ()) -> dict[str, Any]:
        """The row that `one` becomes, without the columns `but` (such as a number that the database gives)."""
        found = {name: getattr(one, name) for name in self.names if name not in but}
        return {n: json.dumps(v) if n in self._packed and v is not None else v for n, v in found.items()}

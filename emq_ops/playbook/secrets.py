"""What came from the environment is neither shown nor stored: in its place stands a reference to its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

T = TypeVar("T")

LEAST = 4
"""Shorter values are no secrets, and would be found everywhere."""
_OPEN, _SHUT = "\ue0f0", "\ue0f1"  # of the private use area, so that stored references can be told from text


class Secrets:
    """The values that templates may read from the environment, by name."""

    def __init__(self, values: Mapping[str, str | None]) -> None:
        known = {name: value for name, value in values.items() if value is not None and len(value) >= LEAST}
        self._values = dict(sorted(known.items(), key=lambda item: -len(item[1])))

    def shown(self, value: T) -> T:
        """`value` (plain data or a dataclass of it) with ``${NAME}`` for every secret in it."""
        return self._mapped(value, {secret: f"${{{name}}}" for name, secret in self._values.items()})

    def stored(self, value: T) -> T:
        """The same, to be brought back by `resolved`."""
        return self._mapped(value, {secret: f"{_OPEN}{name}{_SHUT}" for name, secret in self._values.items()})

    def resolved(self, value: T) -> T:
        """What `stored` made of it, with the values of now."""
        return self._mapped(value, {f"{_OPEN}{name}{_SHUT}": secret for name, secret in self._values.items()})

    def _mapped(self, value: T, table: Mapping[str, str]) -> T:
        return _replaced(value, table) if table else value


def _replaced(value: Any, table: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        for old, new in table.items():
            value = value.replace(old, new)
        return value
    if isinstance(value, list | tuple):
        return type(value)(_replaced(child, table) for child in value)
    if isinstance(value, dict):
        return {_replaced(key, table): _replaced(child, table) for key, child in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: _replaced(getattr(value, f.name), table) for f in fields(value)})
    return value

"""What came from the environment is neither shown nor stored: in its place stands a reference to its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from emq_ops.protocol import masking
from emq_ops.syntax import taint

T = TypeVar("T")


class Secrets:
    """The values that templates may read from the environment, by name."""

    def __init__(self, values: Mapping[str, str | None]) -> None:
        known = {name: value for name, value in values.items() if value is not None and len(value) >= masking.LEAST}
        self._values = dict(sorted(known.items(), key=lambda item: -len(item[1])))
        for name, value in self._values.items():
            masking.remember(value, name)

    def shown(self, value: T) -> T:
        """`value` (plain data or a dataclass of it) with ``${NAME}`` for every secret in it."""
        found: T = _mapped(value, taint.shown) if self._needed else value
        return found

    def stored(self, value: T) -> T:
        """The same, to be brought back by `resolved`."""
        found: T = _mapped(value, self._kept) if self._needed else value
        return found

    @property
    def _needed(self) -> bool:
        return bool(self._values) or taint.is_any()

    def _kept(self, text: str) -> str:
        text = taint.marked(text)
        for name, value in self._values.items():
            text = text.replace(value, f"{taint.OPEN}{name}{taint.SHUT}")
        return masking.masked(text)

    def resolved(self, value: T) -> T:
        """What `stored` made of it, with the values of now."""
        found: T = _mapped(value, lambda text: taint.restored(text, self._values))
        return found


def _mapped(value: Any, each: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return each(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        text = str(value)
        return value if masking.masked(text) == text else each(text)
    if isinstance(value, list | tuple):
        return type(value)([_mapped(child, each) for child in value])
    if isinstance(value, dict):
        return {_mapped(key, each): _mapped(child, each) for key, child in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        told = {f.name: (old := getattr(value, f.name), _mapped(old, each)) for f in fields(value)}
        changed = {name: new for name, (old, new) in told.items() if new is not old}
        return replace(value, **changed) if changed else value
    return value

"""What YAML text becomes: values that know their places. Nothing here reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from emq_ops.syntax.errors import Position

MAX_VALUES = 250_000
MAX_DEPTH = 60


@dataclass(slots=True)
class Scalar:
    """Like every tree, not to be changed once it is built: it may be shared. `block`: a ``|`` or ``>`` text,
    whose content starts a line further down."""

    mark: Position
    value: str | int | float | bool | None
    size: int = 1
    block: bool = False


@dataclass(slots=True)
class ListTree:
    mark: Position
    items: tuple[Tree, ...]
    size: int


@dataclass(slots=True)
class MapTree:
    """`items`: key -> (mark of the key, value)."""

    mark: Position
    items: dict[str, tuple[Position, Tree]]
    size: int
    bare: dict[str, Any] | None = field(default=None, init=False, repr=False, compare=False)
    """What `plain` made of it."""


Tree = Scalar | ListTree | MapTree


def plain(tree: Tree) -> Any:
    """The values of `tree` without marks, for a validator. Made once a mapping, and shared: not to be changed."""
    if isinstance(tree, MapTree):
        if tree.bare is None:
            tree.bare = {key: plain(value) for key, (_, value) in tree.items.items()}
        return tree.bare
    if isinstance(tree, ListTree):
        return [plain(value) for value in tree.items]
    return tree.value

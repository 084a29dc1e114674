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


class Repeated(MapTree):
    """What says the same as `origin`, in the same words elsewhere: `down` lines further down, and its first line
    `right` columns further right. Its values are made with their places when somebody looks at them."""

    __slots__ = ("_down", "_items", "_right", "origin")

    def __init__(self, origin: MapTree, down: int, right: int) -> None:
        self.origin, self._down, self._right = origin, down, right
        self._items: dict[str, tuple[Position, Tree]] | None = None
        self.mark, self.size, self.bare = self._place(origin.mark), origin.size, None

    @property
    def items(self) -> dict[str, tuple[Position, Tree]]:  # type: ignore[override]  # not made before
        """As those of the origin, at their own places."""
        if self._items is None:
            self._items = self._mapping(self.origin)
        return self._items

    def changed(self, origin: MapTree) -> Repeated:
        """Of another origin that stands where the first one does."""
        return Repeated(origin, self._down, self._right)

    def _place(self, mark: Position) -> Position:
        right = self._right if mark.line == self.origin.mark.line else 0
        return Position(mark.file, mark.line + self._down, mark.column + right)

    def _mapping(self, tree: MapTree) -> dict[str, tuple[Position, Tree]]:
        return {key: (self._place(mark), self._moved(below)) for key, (mark, below) in tree.items.items()}

    def _moved(self, tree: Tree) -> Tree:
        mark = self._place(tree.mark)
        if isinstance(tree, MapTree):
            return MapTree(mark, self._mapping(tree), tree.size)
        if isinstance(tree, ListTree):
            return ListTree(mark, tuple(map(self._moved, tree.items)), tree.size)
        return Scalar(mark, tree.value, block=tree.block)


Tree = Scalar | ListTree | MapTree


def origin_of(tree: MapTree) -> MapTree:
    """The one mapping of all that say the same in the same words."""
    return tree.origin if isinstance(tree, Repeated) else tree


def plain(tree: Tree) -> Any:
    """The values of `tree` without marks, for a validator. Made once a mapping, and shared: not to be changed."""
    if isinstance(tree, MapTree):
        origin = origin_of(tree)
        if origin.bare is None:
            origin.bare = {key: plain(value) for key, (_, value) in origin.items.items()}
        return origin.bare
    if isinstance(tree, ListTree):
        return [plain(value) for value in tree.items]
    return tree.value

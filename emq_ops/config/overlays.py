"""Trees of a config over one another, and sections that are named with nothing in them. Trees are not changed."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

from emq_ops.config.explain import dotted
from emq_ops.passes.registry import PASSES
from emq_ops.policy.scalars import parse_duration, parse_size
from emq_ops.syntax.errors import BUILT_IN, Position, SourceError
from emq_ops.syntax.nodes import MapTree, Repeated, Scalar, Tree, origin_of


def overlay(low: Tree, high: Tree, path: tuple[str, ...] = ()) -> Tree:
    """`high` over `low`: mappings key by key, everything else replaced. Neither is changed. Raises SourceError for
    nothing at all over a mapping: whoever wrote it may have meant to take the mapping away, or to leave it."""
    if isinstance(low, MapTree):
        if isinstance(high, MapTree):
            items = dict(low.items)
            for key, (mark, value) in high.items.items():
                items[key] = (mark, overlay(items[key][1], value, (*path, key))) if key in items else (mark, value)
            return MapTree(high.mark, items, low.size + high.size)
        if isinstance(high, Scalar) and high.value is None:
            off = "{enabled: false} switches a pass off, " if len(path) > 2 or path[:1] == ("defaults",) else ""
            raise SourceError(
                f"says nothing, over what {low.mark} says",
                high.mark,
                path=dotted(path),
                fix=f"{off}{{}} adds nothing; or take the line out",
            )
    return high


class Layered:
    """What the files say for a queue, one over the other. Put together when somebody asks where a value stands."""

    __slots__ = ("_layers", "_tree")

    def __init__(self, layers: tuple[Tree, ...]) -> None:
        self._layers, self._tree = layers, None if layers else MapTree(BUILT_IN, {}, 1)

    @property
    def tree(self) -> MapTree:
        """All of them as one. Raises SourceError."""
        if self._tree is None:
            merged = functools.reduce(overlay, self._layers)
            assert isinstance(merged, MapTree)
            self._tree = merged
        return self._tree

    @property
    def words(self) -> tuple[int, ...]:
        """Equal where all layers say the same in the same words."""
        return tuple(id(origin_of(one) if isinstance(one, MapTree) else one) for one in self._layers)


_EMPTY_IS_MAPPING = ("server", "state", "archive", "defaults", "queues", "daemon", "http", "plan")


def fill(tree: Tree) -> MapTree:
    """`tree` with a mapping where a section is named and nothing is written in it (``orders:``)."""
    if not isinstance(tree, MapTree):
        raise SourceError("", tree.mark, expected="a mapping: server, state, archive, defaults, queues ...")

    def filled(value: Tree, depth: int) -> Tree:
        if isinstance(value, Scalar) and value.value is None:
            return MapTree(value.mark, {}, 1)
        if depth and isinstance(value, MapTree):
            sections = {
                key: (mark, filled(below, 0) if key in _FILLED else below) for key, (mark, below) in value.items.items()
            }
            for name in _MANY & sections.keys():
                at, several = sections[name]
                if isinstance(several, MapTree):
                    below = {key: (mark, filled(one, 0)) for key, (mark, one) in several.items.items()}
                    sections[name] = (at, MapTree(several.mark, below, several.size))
            return MapTree(value.mark, sections, value.size)
        return value

    done: dict[int, Tree] = {}  # entries that say the same in the same words stay the same

    def filled_entry(entry: Tree) -> Tree:
        if not isinstance(entry, MapTree):
            return filled(entry, 1)
        origin = origin_of(entry)
        found = done.get(id(origin))
        if found is None:
            found = done[id(origin)] = filled(origin, 1)
        return entry.changed(found) if isinstance(entry, Repeated) and isinstance(found, MapTree) else found

    items: dict[str, tuple[Position, Tree]] = {}
    for key, (mark, value) in tree.items.items():
        if key.startswith("x-"):
            continue  # a place for anchors; nothing reads it
        if key == "queues" and isinstance(value, MapTree):
            entries = {name: (m, filled_entry(entry)) for name, (m, entry) in value.items.items()}
            items[key] = (mark, MapTree(value.mark, entries, value.size))
        elif key in _EMPTY_IS_MAPPING:
            items[key] = (mark, filled(value, 1 if key == "defaults" else 0))
        else:
            items[key] = (mark, value)
    return MapTree(tree.mark, items, tree.size)


_FILLED = (*(one.section for one in PASSES), "settings")
_MANY = {one.section for one in PASSES if one.many}


def as_written(value: Any, said: Tree | None) -> Any:
    """`value`, or where it is a duration or a size the text that says the same in the file: 24h is not read back as
    1d."""
    if not isinstance(value, str) or not isinstance(said, Scalar) or not isinstance(said.value, str):
        return value
    for parse in (parse_duration, parse_size):
        with contextlib.suppress(ValueError):
            return said.value if parse(said.value) == parse(value) else value
    return value

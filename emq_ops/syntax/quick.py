"""The tree of plain YAML text in one pass, for files of a thousand queues.

What libyaml reads without anchors, aliases, tags, merges and faults, which is nearly every file; everything else is
left to `tree`, which says what is wrong.
"""

from __future__ import annotations

from typing import Any

import yaml

from emq_ops.syntax.core import scalar
from emq_ops.syntax.errors import Position
from emq_ops.syntax.events import UnsureError, parser_of
from emq_ops.syntax.nodes import MAX_DEPTH, MAX_VALUES, ListTree, MapTree, Scalar, Tree


def document(text: str, file: str, first: int = 1) -> Tree:
    """The one document in `text`, whose first line is line `first` of the file. Raises UnsureError."""
    step = parser_of(text).get_event
    try:
        step()
        if type(step()) is not yaml.DocumentStartEvent:
            raise UnsureError
        tree = _Quick(step, file, first).value(step(), 0, Position(file, first, 1))
        step()
        if type(step()) is not yaml.StreamEndEvent or tree.size > MAX_VALUES:
            raise UnsureError
    except yaml.YAMLError:
        raise UnsureError from None
    return tree


class _Quick:
    def __init__(self, step: Any, file: str, first: int) -> None:
        self._step, self._file, self._first = step, file, first
        self._said: dict[str, Any] = {}  # what plain texts say: most of them stand there many times

    def value(self, event: Any, depth: int, above: Position) -> Tree:
        """The value that `event` begins. `above`: the place of its key, where a value that is not there stands."""
        kind = type(event)
        if kind is yaml.AliasEvent or event.anchor is not None or event.tag is not None or depth > MAX_DEPTH:
            raise UnsureError
        start = event.start_mark
        if kind is yaml.ScalarEvent:
            text = event.value
            if event.style:
                return Scalar(Position(self._file, start.line + self._first, start.column + 1), _whole(text))
            if not text:
                return Scalar(above, None)
            if text not in self._said:
                self._said[text] = scalar(_whole(text))
            return Scalar(Position(self._file, start.line + self._first, start.column + 1), self._said[text])
        mark = Position(self._file, start.line + self._first, start.column + 1)
        return self._mapping(mark, depth) if kind is yaml.MappingStartEvent else self._list(mark, depth)

    def _mapping(self, mark: Position, depth: int) -> MapTree:
        step, file, value, first = self._step, self._file, self.value, self._first
        items: dict[str, tuple[Position, Tree]] = {}
        size, depth = 1, depth + 1
        while type(key := step()) is yaml.ScalarEvent:
            name, start = key.value, key.start_mark
            if name in items or key.anchor is not None or key.tag is not None:
                raise UnsureError
            if not key.style and (not name or name == "<<"):
                raise UnsureError
            place = Position(file, start.line + first, start.column + 1)
            below = value(step(), depth, place)
            items[_whole(name)] = (place, below)
            size += below.size
        if type(key) is not yaml.MappingEndEvent:
            raise UnsureError
        return MapTree(mark, items, size)

    def _list(self, mark: Position, depth: int) -> ListTree:
        items: list[Tree] = []
        while type(event := self._step()) is not yaml.SequenceEndEvent:
            items.append(self.value(event, depth + 1, mark))
        return ListTree(mark, tuple(items), 1 + sum(item.size for item in items))


def _whole(text: str) -> str:
    """`text`, if it holds no half of a surrogate pair."""
    if not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
        raise UnsureError
    return text

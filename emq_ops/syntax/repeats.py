"""The tree of plain YAML text in which many entries say the same in the same words, as those of a thousand queues do:
each text is read once.

A mapping's entries are cut apart where their keys stand, and the text of each is read by itself; the rest of the file
is read without them. Where all of these are whole, so is what they were cut from. Everything else is left to `quick`.
"""

from __future__ import annotations

import re

from emq_ops.syntax import quick
from emq_ops.syntax.errors import Position
from emq_ops.syntax.events import UnsureError, require_agreed
from emq_ops.syntax.nodes import MAX_VALUES, MapTree, Repeated, Scalar, Tree

LONG = 4000
"""Characters of a mapping from which on cutting it apart is worth it."""
_FEW = 64
"""So many different texts are read before it is asked whether any is there twice."""
_MAPPING = re.compile(r"^([A-Za-z0-9_][\w-]*): *(?:#.*)?\n((?:(?: .*|#.*)?\n)+)", re.MULTILINE)
_FIRST = re.compile(r"(?: *(?:#.*)?\n)*( +)")
_NOTHING = re.compile(r"(?: *(?:#.*)?\n)*")


def document(text: str, file: str, long: int = LONG) -> Tree:
    """The one document in `text`, cut at mappings of `long` characters and more. Raises UnsureError."""
    if len(text) < long:
        raise UnsureError
    require_agreed(text)
    text = text if text.endswith("\n") else f"{text}\n"
    rest: list[str] = []
    found: dict[str, tuple[Position, MapTree]] = {}
    done, line = 0, 0
    for match in _MAPPING.finditer(text):
        if match.end() - match.start(2) < long or match[1] in found:
            continue
        rest.append(text[done : match.start(2)])
        line += rest[-1].count("\n")
        found[match[1]] = Position(file, line, 1), _Entries(match[2], file, line + 1).tree()
        blank = "\n" * match[2].count("\n")
        rest.append(blank)
        line += len(blank)
        done = match.end()
    tree = quick.document("".join((*rest, text[done:])), file) if found else None
    if not isinstance(tree, MapTree):
        raise UnsureError
    for name, (place, entries) in found.items():
        if tree.items.get(name) != (place, Scalar(place, None)):
            raise UnsureError
        tree.items[name] = place, entries
        tree.size += entries.size - 1
    if tree.size > MAX_VALUES:
        raise UnsureError
    return tree


class _Entries:
    """The entries of one mapping. `first`: the number of its first line."""

    def __init__(self, text: str, file: str, first: int) -> None:
        self._text, self._file, self._line = text, file, first
        self._seen = 0
        self._known: dict[str, tuple[MapTree, int, int]] = {}  # by text: the first of them, its line and column

    def tree(self) -> MapTree:
        """The mapping. Raises UnsureError."""
        text, first = self._text, _FIRST.match(self._text)
        if first is None:
            raise UnsureError
        depth = len(first[1])
        key = re.compile(
            rf"""^ {{{depth}}}(?:([A-Za-z0-9_][\w.*?-]*)|'([^'\n]+)'|"([^"\\\n]+)"):(?: +([^\s#].*)?(?:#.*)?)?$""",
            re.MULTILINE,
        )
        matches = list(key.finditer(text))
        if not matches or not _NOTHING.fullmatch(text, 0, matches[0].start()):
            raise UnsureError
        items: dict[str, tuple[Position, Tree]] = {}
        size, at = 1, 0
        for match, end in zip(matches, [*(match.start() for match in matches[1:]), len(text)], strict=True):
            self._line += text.count("\n", at, match.start())
            at = match.start()
            place = Position(self._file, self._line, depth + 1)
            name = match[1] or match[2] or match[3]
            if name in items or len(name) > 200:
                raise UnsureError
            value = self._value(match, text[match.end() + 1 : end], place)
            items[name] = place, value
            size += value.size
        return MapTree(items[next(iter(items))][0], items, size)

    def _value(self, match: re.Match[str], below: str, place: Position) -> Tree:
        inline = match[4]
        line, column = self._line, 0
        if inline is not None:
            if not inline.startswith("{") or not _NOTHING.fullmatch(below):
                raise UnsureError
            column = match.start(4) - match.start()
            below = inline
        elif _NOTHING.fullmatch(below):
            return Scalar(place, None)
        else:
            line += 1
        self._seen += 1
        known = self._known.get(below)
        if known is None:
            if len(self._known) >= _FEW and 2 * len(self._known) > self._seen:
                raise UnsureError  # as whole, it is read faster
            tree = quick.document(" " * column + below, self._file, line)
            if not isinstance(tree, MapTree) or tree.mark.column <= place.column:
                raise UnsureError
            self._known[below] = tree, line, column
            return tree
        return Repeated(known[0], line - known[1], column - known[2])

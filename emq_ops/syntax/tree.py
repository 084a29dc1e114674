"""YAML 1.2 text as a tree in which every value knows its file, line and column. Scalars are of the core schema.

Built from the parser's events rather than from constructed objects: keys stay the text that was written, a key given
twice is refused with both lines, aliases share one immutable value (overriding one user of an alias never touches
another), and what they would expand to is counted before anything is expanded.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from emq_ops.protocol.errors import one_line
from emq_ops.syntax import quick, repeats
from emq_ops.syntax.core import BOOL, NULL, number
from emq_ops.syntax.errors import Position, SourceError
from emq_ops.syntax.events import UnsureError, YamlEvent, fast
from emq_ops.syntax.nodes import MAX_DEPTH, MAX_VALUES, ListTree, MapTree, Scalar, Tree, plain

MAX_BYTES = 4 << 20

__all__ = ["MAX_BYTES", "MAX_DEPTH", "MAX_VALUES", "ListTree", "MapTree", "Scalar", "Tree", "parse", "plain"]

_PREFIX = "tag:yaml.org,2002:"


def parse(text: bytes, file: str) -> Tree:
    """The one document in `text`. Raises SourceError: one line with file, line and column."""
    if len(text) > MAX_BYTES:
        raise SourceError(
            f"the file has {len(text):,} bytes",
            Position(file, 1, 1),
            fix=f"at most {MAX_BYTES:,}; split it with include:",
        )
    try:
        decoded = text.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        line = text.count(b"\n", 0, fault.start) + 1
        raise SourceError("not UTF-8 text", Position(file, line, 1), fix="save the file as UTF-8") from None
    if directive := re.search(r"^%YAML\s+(?!1\.2\b)(\S+)", decoded, re.MULTILINE):
        line = decoded.count("\n", 0, directive.start()) + 1
        raise SourceError(f"YAML {directive[1]} is not read", Position(file, line, 1), fix="take the %YAML line out")
    for read in (repeats.document, quick.document, _document):
        with contextlib.suppress(UnsureError):
            return read(decoded, file)
    from emq_ops.syntax import careful  # and ruamel.yaml, which hardly any file needs

    try:
        return _Builder(file, careful.sure(decoded)).document()
    except careful.FAULTS as fault:
        raise careful.refusal(fault, decoded, file) from None


def _document(text: str, file: str) -> Tree:
    return _Builder(file, fast(text)).document()


class _Builder:
    """Turns events into a tree. What several aliases name is built once and shared."""

    def __init__(self, file: str, events: Iterator[YamlEvent]) -> None:
        self._file = file
        self._next = events.__next__
        self._events = events
        self._anchored: dict[str, tuple[Tree | None, str]] = {}  # the value (None: not whole yet), its text

    def document(self) -> Tree:
        """The one document; nothing (None) where there is none. Raises SourceError, and what the events raise."""
        if next(self._events, None) is None:
            return Scalar(Position(self._file, 1, 1), None)
        tree = self._build(self._next(), "", 0, Position(self._file, 1, 1))
        self._next()
        second = next(self._events, None)
        if second is not None:
            fix = "one document a file: take out the --- lines"
            raise SourceError("a second document begins", self._mark(second), fix=fix)
        return tree

    def _mark(self, event: YamlEvent) -> Position:
        return Position(self._file, event.line, event.column)

    def _build(self, event: YamlEvent, path: str, depth: int, above: Position) -> Tree:
        """The value that `event` begins. `above`: the place of its key, where a value that is not there stands."""
        if event.kind == "alias":
            return self._named(event, path)[0]
        mark = above if event.plain and not event.text else self._mark(event)
        if depth > MAX_DEPTH:
            raise SourceError("nested too deeply", mark, path=path, fix=f"at most {MAX_DEPTH} levels")
        if event.anchor is not None:
            self._anchored[event.anchor] = None, ""
        tree: Tree
        if event.kind == "scalar":
            tree = self._scalar(event, mark, path)
        elif event.kind == "sequence":
            tree = self._sequence(event, mark, path, depth)
        else:
            tree = self._mapping(event, mark, path, depth)
        if event.anchor is not None:
            self._anchored[event.anchor] = tree, event.text
        return tree

    def _named(self, event: YamlEvent, path: str) -> tuple[Tree, str]:
        """What an alias names, and its text."""
        name = event.anchor or ""
        if name not in self._anchored:
            fix = "an alias *name stands after its anchor &name, in the same file"
            raise SourceError(f"found undefined alias '{name}'", self._mark(event), path=path, fix=fix)
        tree, text = self._anchored[name]
        if tree is None:
            fix = "take it out"
            raise SourceError("an alias stands inside its own anchor", self._mark(event), path=path, fix=fix)
        return tree, text

    def _core_tag(self, event: YamlEvent, names: tuple[str, ...], mark: Position, path: str) -> str | None:
        """The core type that a tag names; None where no tag is written."""
        if event.tag is None or event.tag == "!":
            return None if event.tag is None else names[0]
        name = event.tag.removeprefix(_PREFIX)
        if name not in names or name == event.tag:
            shown = event.tag.replace(_PREFIX, "!!")
            raise SourceError(f"the tag {shown} is not taken", mark, path=path, fix="take it out")
        return name

    def _counted(self, size: int, mark: Position, path: str) -> int:
        if size > MAX_VALUES:
            raise SourceError(
                f"aliases make this more than {MAX_VALUES:,} values", mark, path=path, fix="make it smaller"
            )
        return size

    def _scalar(self, event: YamlEvent, mark: Position, path: str) -> Scalar:
        names = ("str", "int", "float", "bool", "null", "timestamp")
        kind = None if event.tag is None else self._core_tag(event, names, mark, path)
        text = event.text
        if not event.plain or kind in ("str", "timestamp"):
            return Scalar(mark, self._whole(text, mark, path), block=event.block)
        if kind == "null" or (kind is None and text in NULL):
            return Scalar(mark, None)
        if kind == "bool" or (kind is None and text in BOOL):
            return Scalar(mark, text.lower() == "true")
        value = number(text)
        if value is None and kind in ("int", "float"):
            raise SourceError(f"'{one_line(text[:40])}' is no number", mark, path=path, fix="take the tag out")
        return Scalar(mark, self._whole(text, mark, path) if value is None else value)

    @staticmethod
    def _whole(text: str, mark: Position, path: str) -> str:
        """`text` with surrogate pairs, as JSON escapes them, put together. Raises SourceError for half a pair."""
        if text.isascii() or not any("\ud800" <= c <= "\udfff" for c in text):
            return text
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            raise SourceError("half of a surrogate pair", mark, path=path, fix="write the character itself") from None

    def _sequence(self, event: YamlEvent, mark: Position, path: str, depth: int) -> ListTree:
        self._core_tag(event, ("seq",), mark, path)
        items: list[Tree] = []
        size = 1
        while (item := self._next()).kind != "end":
            items.append(self._build(item, f"{path}[{len(items)}]", depth + 1, mark))
            size = self._counted(size + items[-1].size, mark, path)
        return ListTree(mark, tuple(items), size)

    def _mapping(self, event: YamlEvent, mark: Position, path: str, depth: int) -> MapTree:
        self._core_tag(event, ("map",), mark, path)
        own: dict[str, tuple[Position, Tree]] = {}
        merged: list[MapTree] = []
        while (at := self._next()).kind != "end":
            key_mark = self._mark(at)
            key, is_merge = self._key(at, key_mark, path)
            if (first := own.get(key)) is not None:
                raise SourceError(
                    f"'{key}' is given twice, on lines {first[0].line} and {key_mark.line}",
                    key_mark,
                    path=path,
                    fix="keep one of them",
                )
            value = self._build(self._next(), f"{path}.{key}" if path else key, depth + 1, key_mark)
            own[key] = (key_mark, value)
            if is_merge:
                merged = self._sources(value, key_mark, path)
        if merged:
            del own["<<"]
        items: dict[str, tuple[Position, Tree]] = {}
        for source in reversed(merged):
            items.update(source.items)
        items.update(own)
        return MapTree(mark, items, self._counted(1 + sum(v.size for _, v in items.values()), mark, path))

    @staticmethod
    def _sources(value: Tree, mark: Position, path: str) -> list[MapTree]:
        """The mappings that a merge names."""
        found: list[MapTree] = []
        for source in value.items if isinstance(value, ListTree) else (value,):
            if not isinstance(source, MapTree):
                raise SourceError("<< merges a mapping, or a list of them", mark, path=path)
            found.append(source)
        return found

    def _key(self, event: YamlEvent, mark: Position, path: str) -> tuple[str, bool]:
        """The text of a key, and whether it is the merge key."""
        text, plain = event.text, event.plain
        if event.kind == "alias":
            tree, text = self._named(event, path)
            kind = "scalar" if isinstance(tree, Scalar) else "mapping"
        else:
            kind = event.kind
        if kind != "scalar":
            raise SourceError("a key must be text", mark, path=path, fix='put it in quotes: "${NAME}" or "{...}"')
        if event.anchor is not None and event.kind == "scalar":
            self._anchored[event.anchor] = self._scalar(event, mark, path), text
        key = self._whole(text, mark, path)
        if not key and plain:
            raise SourceError("an empty key", mark, path=path, fix="name it")
        return key, key == "<<" and plain and event.tag is None

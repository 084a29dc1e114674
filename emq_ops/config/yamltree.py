"""YAML 1.2 text as a tree in which every value knows its file, line and column.

Built from the parser's nodes rather than from constructed objects: keys stay the text that was written, a key given
twice is refused with both lines, aliases share one immutable value (overriding one user of an alias never touches
another), and what they would expand to is counted before anything is expanded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError, YAMLStreamError

from emq_ops.config.errors import ConfigError, Mark

MAX_BYTES = 4 << 20
MAX_VALUES = 250_000
MAX_DEPTH = 60

_PREFIX = "tag:yaml.org,2002:"
_INT = re.compile(r"-?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"-?(?:0|[1-9][0-9]*)\.[0-9]+")


@dataclass(frozen=True, slots=True)
class OddNumber:
    """A plain scalar that different readers take for different numbers (``010000``, ``0o10``, ``1e3``): no field
    takes it; as a key it is the text as written."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Scalar:
    mark: Mark
    value: str | int | float | bool | OddNumber | None
    size: int = 1


@dataclass(frozen=True, slots=True)
class Sequence:
    mark: Mark
    items: tuple[Tree, ...]
    size: int


@dataclass(frozen=True, slots=True)
class Mapping:
    """`items`: key -> (mark of the key, value)."""

    mark: Mark
    items: dict[str, tuple[Mark, Tree]]
    size: int


Tree = Scalar | Sequence | Mapping


def plain(tree: Tree) -> Any:
    """The values of `tree` without marks, for a validator."""
    if isinstance(tree, Mapping):
        return {key: plain(value) for key, (_, value) in tree.items.items()}
    if isinstance(tree, Sequence):
        return [plain(value) for value in tree.items]
    return tree.value


def parse(text: bytes, file: str) -> Tree:
    """The one document in `text`. Raises ConfigError: one line with file, line and column."""
    if len(text) > MAX_BYTES:
        raise ConfigError(
            f"the file has {len(text):,} bytes", Mark(file, 1, 1), fix=f"at most {MAX_BYTES:,}; use globs or include:"
        )
    try:
        decoded = text.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        line = text.count(b"\n", 0, fault.start) + 1
        raise ConfigError("not UTF-8 text", Mark(file, line, 1), fix="save the file as UTF-8") from None
    if directive := re.search(r"^%YAML\s+(?!1\.2\b)(\S+)", decoded, re.MULTILINE):
        line = decoded.count("\n", 0, directive.start()) + 1
        raise ConfigError(f"YAML {directive[1]} is not read", Mark(file, line, 1), fix="take the %YAML line out")
    _check_depth(decoded, file)
    reader = YAML(typ="safe", pure=True)
    try:
        node = reader.compose(decoded)
    except RecursionError:
        raise ConfigError("nested too deeply", Mark(file, 1, 1), fix=f"at most {MAX_DEPTH} levels") from None
    except (YAMLError, YAMLStreamError) as fault:
        raise _syntax(fault, decoded, file) from None
    if node is None:
        return Mapping(Mark(file, 1, 1), {}, 1)
    return _Builder(file).build(node, "", 0)


_BRACKETS = re.compile(r"\"(?:\\.|[^\"\\])*\"|'[^'\n]*'|#[^\n]*|[\[\]{}]", re.DOTALL)


def _check_depth(text: str, file: str) -> None:
    """Refuses brackets that are nested beyond reason before the parser sees them: it takes quadratic time over them."""
    depth = 0
    for token in _BRACKETS.finditer(text):
        if token[0] in "[{":
            depth += 1
            if depth > 2 * MAX_DEPTH:
                line = text.count("\n", 0, token.start()) + 1
                raise ConfigError("nested too deeply", Mark(file, line, 1), fix=f"at most {MAX_DEPTH} levels")
        elif token[0] in "]}":
            depth = max(0, depth - 1)


def _syntax(fault: YAMLError | YAMLStreamError, text: str, file: str) -> ConfigError:
    place = getattr(fault, "problem_mark", None) or getattr(fault, "context_mark", None)
    problem = str(getattr(fault, "problem", None) or fault).strip().split("\n")[0]
    line, column = (place.line, place.column) if place is not None else _unprintable(fault, text)
    lines = text.split("\n")
    shown = lines[line] if line < len(lines) else ""
    fix = None
    if "\t" in shown[: max(column, len(shown) - len(shown.lstrip()))] or "'\\t'" in problem:
        problem, fix = "a tab indents this line", "YAML takes spaces only"
    elif "${" in shown and ("{" in shown.replace("${", "") or "[" in shown):
        fix = 'inside { } and [ ] put a reference in quotes: "${NAME}"'
    elif "undefined alias" in problem:
        fix = "an alias *name stands after its anchor &name, in the same file"
    elif "single document" in problem or "document" in problem:
        fix = "one document a file: take out the --- lines"
    return ConfigError(problem, Mark(file, line + 1, column + 1), fix=fix)


def _unprintable(fault: object, text: str) -> tuple[int, int]:
    position = getattr(fault, "position", None)
    if not isinstance(position, int):
        return 0, 0
    line = text.count("\n", 0, position)
    return line, position - (text.rfind("\n", 0, position) + 1)


class _Builder:
    """Turns parser nodes into a tree; a node that several aliases name is built once and shared."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._done: dict[int, Tree] = {}
        self._open: set[int] = set()

    def build(self, node: Any, path: str, depth: int) -> Tree:
        known = self._done.get(id(node))
        if known is not None:
            return known
        mark = self._mark(node)
        if id(node) in self._open:
            raise ConfigError("an alias stands inside its own anchor", mark, path=path, fix="take it out")
        if depth > MAX_DEPTH:
            raise ConfigError("nested too deeply", mark, path=path, fix=f"at most {MAX_DEPTH} levels")
        self._open.add(id(node))
        tree: Tree
        if node.id == "mapping":
            tree = self._mapping(node, mark, path, depth)
        elif node.id == "sequence":
            self._core_tag(node, ("seq",), mark, path)
            items = tuple(self.build(n, f"{path}[{i}]", depth + 1) for i, n in enumerate(node.value))
            tree = Sequence(mark, items, self._counted(1 + sum(i.size for i in items), mark, path))
        else:
            tree = self._scalar(node, mark, path)
        self._open.discard(id(node))
        self._done[id(node)] = tree
        return tree

    def _mark(self, node: Any) -> Mark:
        return Mark(self._file, node.start_mark.line + 1, node.start_mark.column + 1)

    def _core_tag(self, node: Any, names: tuple[str, ...], mark: Mark, path: str) -> str:
        tag = str(node.tag)
        name = tag.removeprefix(_PREFIX)
        if name not in names or name == tag:
            shown = tag.replace(_PREFIX, "!!")
            raise ConfigError(f"the tag {shown} is not taken", mark, path=path, fix="take it out")
        return name

    def _counted(self, size: int, mark: Mark, path: str) -> int:
        if size > MAX_VALUES:
            raise ConfigError(
                f"aliases make this more than {MAX_VALUES:,} values", mark, path=path, fix="use globs instead"
            )
        return size

    def _scalar(self, node: Any, mark: Mark, path: str) -> Scalar:
        names = ("str", "int", "float", "bool", "null", "timestamp")
        kind = self._core_tag(node, names, mark, path)
        text: str = node.value
        if node.style in ("'", '"', "|", ">") or kind in ("str", "timestamp"):
            return Scalar(mark, self._whole(text, mark, path))
        if kind == "null":
            return Scalar(mark, None)
        if kind == "bool":
            return Scalar(mark, text.lower() == "true")
        if _INT.fullmatch(text) and len(text) <= 20:
            return Scalar(mark, int(text))
        if _FLOAT.fullmatch(text) and len(text) <= 40:
            return Scalar(mark, float(text))
        return Scalar(mark, OddNumber(text))

    @staticmethod
    def _whole(text: str, mark: Mark, path: str) -> str:
        """`text` with surrogate pairs, as JSON escapes them, put together. Raises ConfigError for half a pair."""
        if text.isascii() or not any("\ud800" <= c <= "\udfff" for c in text):
            return text
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            raise ConfigError("half of a surrogate pair", mark, path=path, fix="write the character itself") from None

    def _mapping(self, node: Any, mark: Mark, path: str, depth: int) -> Mapping:
        self._core_tag(node, ("map",), mark, path)
        own: dict[str, tuple[Mark, Tree]] = {}
        merged: list[Mapping] = []
        seen: dict[str, Mark] = {}
        for key_node, value_node in node.value:
            key_mark = self._mark(key_node)
            key = self._key(key_node, key_mark, path)
            is_merge = str(key_node.tag) == _PREFIX + "merge"
            if (first := seen.get(key)) is not None:
                raise ConfigError(
                    f"'{key}' is given twice, on lines {first.line} and {key_mark.line}",
                    key_mark,
                    path=path,
                    fix="keep one of them",
                )
            seen[key] = key_mark
            below = f"{path}.{key}" if path else key
            value = self.build(value_node, below, depth + 1)
            if not is_merge:
                own[key] = (key_mark, value)
                continue
            for source in value.items if isinstance(value, Sequence) else (value,):
                if not isinstance(source, Mapping):
                    raise ConfigError("<< merges a mapping, or a list of them", key_mark, path=path)
                merged.append(source)
        items: dict[str, tuple[Mark, Tree]] = {}
        for source in reversed(merged):
            items.update(source.items)
        items.update(own)
        return Mapping(mark, items, self._counted(1 + sum(v.size for _, v in items.values()), mark, path))

    def _key(self, node: Any, mark: Mark, path: str) -> str:
        if node.id != "scalar":
            raise ConfigError("a key must be text", mark, path=path, fix='put it in quotes: "${NAME}" or "{...}"')
        key = self._whole(str(node.value), mark, path)
        if not key and node.style is None:
            raise ConfigError("an empty key", mark, path=path, fix="name it")
        return key

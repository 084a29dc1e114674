"""YAML with positions: a file becomes a tree of nodes, each of which knows its line and column.

YAML 1.2 without its traps: ``no`` and ``0o10`` are text, a repeated key is refused, so are foreign tags. Aliases and
merge keys work, within a bound on what they may expand to.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from emq_ops.playbook.errors import PlaybookError, Pos, wrong
from emq_ops.protocol.errors import one_line

MAX_BYTES = 1 << 20
MAX_NODES = 50_000
MAX_DEPTH = 50

_INT = re.compile(r"[-+]?(0|[1-9][0-9]{0,18})")
_FLOAT = re.compile(r"[-+]?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]{1,3})?")
_CONSTANTS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


@dataclass(frozen=True, slots=True)
class Node:
    """A value and where it stands. `value`: None, bool, int, float, str, a list of nodes, or a dict of them.

    `keys`: positions of a mapping's keys. `block`: a ``|`` or ``>`` text, whose content starts a line further down.
    """

    value: Any
    pos: Pos
    keys: dict[str, Pos] = field(default_factory=dict)
    block: bool = False

    def data(self) -> Any:
        """The value without positions."""
        if isinstance(self.value, list):
            return [child.data() for child in self.value]
        if isinstance(self.value, dict):
            return {key: child.data() for key, child in self.value.items()}
        return self.value

    def kind(self) -> str:
        """What this is, in words for an error."""
        return kind_of(self.value)


def kind_of(value: Any) -> str:
    """What a value is, in words for an error."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the text '{one_line(value[:40])}'"
    return "a list" if isinstance(value, list) else "a mapping"


def scalar(text: str) -> Any:
    """A plain (unquoted) scalar by YAML 1.2's core schema, decimal numbers only; anything else is text."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INT.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def node_of(value: Any, pos: Pos) -> Node:
    """Plain data as nodes that all stand at `pos` (values of ``-e``)."""
    if isinstance(value, dict):
        return Node({str(k): node_of(v, pos) for k, v in value.items()}, pos, {str(k): pos for k in value})
    if isinstance(value, list | tuple):
        return Node([node_of(v, pos) for v in value], pos)
    return Node(value, pos)


def read(path: Path, shown: str) -> tuple[Node, bytes]:
    """The one document in the file `path`, and its bytes. Raises PlaybookError; `shown` is how errors name the file."""
    start = Pos(shown, 1, 1)
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as fault:
        raise PlaybookError(f"can't be read: {fault.strerror}", where=shown, fix="check the path") from fault
    if len(raw) > MAX_BYTES:
        wrong(start, f"larger than {MAX_BYTES >> 20} MiB", "a playbook is a page or two of text")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        wrong(start.down(raw[: fault.start].count(b"\n")), "not UTF-8 text", "save the file as UTF-8")
    return parse(text, shown), raw


def parse(text: str, shown: str) -> Node:
    """The one YAML document in `text`. Raises PlaybookError with the position of what is wrong."""
    start = Pos(shown, 1, 1)
    if re.search(r"^%", text, re.MULTILINE):
        wrong(start, "YAML directives are not taken", "leave out lines that begin with %")
    try:
        root = YAML(typ="rt", pure=True).compose(text)
    except MarkedYAMLError as fault:
        mark = fault.problem_mark or fault.context_mark
        pos = Pos(shown, mark.line + 1, mark.column + 1) if mark else start
        wrong(pos, f"not YAML: {fault.problem or fault.context}", _yaml_fix(str(fault.problem)))
    except ReaderError as fault:
        line = text.count("\n", 0, fault.position) + 1
        wrong(Pos(shown, line, 1), "not YAML: a control character", "leave it out")
    except (YAMLError, ValueError) as fault:
        wrong(start, f"not YAML: {fault}")
    except RecursionError:
        wrong(start, "nested too deeply", f"at most {MAX_DEPTH} levels")
    return _Converter(shown).convert(root, 0) if root is not None else Node(None, start)


def _yaml_fix(problem: str) -> str | None:
    if "\\t" in problem:
        return "indent with spaces, not tabs"
    return "quote a text that holds ': ' or begins with '{{'" if "mapping values" in problem else None


class _Converter:
    """From ruamel's nodes to ours, counting, so that aliases can't blow up."""

    def __init__(self, shown: str) -> None:
        self.shown = shown
        self.count = 0

    def pos(self, node: Any) -> Pos:
        return Pos(self.shown, node.start_mark.line + 1, node.start_mark.column + 1)

    def convert(self, node: Any, depth: int) -> Node:
        pos = self.pos(node)
        self.count += 1
        if self.count > MAX_NODES:
            wrong(pos, f"more than {MAX_NODES} values (aliases counted as often as they are used)", "make it smaller")
        if depth > MAX_DEPTH:
            wrong(pos, "nested too deeply (or an alias inside itself)", f"at most {MAX_DEPTH} levels")
        tag = str(node.tag or "")
        if (tag and not tag.startswith("tag:yaml.org,2002:")) or "python" in tag:
            wrong(pos, f"tag '{tag}' is not taken", "leave the tag out")
        if isinstance(node, ScalarNode):
            plain = node.style in (None, "") and tag != "tag:yaml.org,2002:str"
            return Node(scalar(node.value) if plain else node.value, pos, block=node.style in ("|", ">"))
        if isinstance(node, SequenceNode):
            return Node([self.convert(child, depth + 1) for child in node.value], pos)
        if isinstance(node, MappingNode):
            return self._mapping(node, pos, depth)
        wrong(pos, f"unexpected YAML node {type(node).__name__}")

    def _mapping(self, node: Any, pos: Pos, depth: int) -> Node:
        own: dict[str, Node] = {}
        keys: dict[str, Pos] = {}
        merged: list[Node] = []
        for key_node, value_node in node.value:
            at = self.pos(key_node)
            if not isinstance(key_node, ScalarNode):
                wrong(at, "a key must be a text", "quote a key that begins with '{' or '['")
            key = str(key_node.value)
            if key == "<<" and key_node.style in (None, ""):
                merged += self._merge(self.convert(value_node, depth + 1))
                continue
            if key in own:
                wrong(at, f"key '{one_line(key)}' stands twice, first in line {keys[key].line}", "keep one of them")
            own[key] = self.convert(value_node, depth + 1)
            keys[key] = at
        for source in merged:
            for key, child in source.value.items():
                if key not in own:
                    own[key], keys[key] = child, source.keys[key]
        return Node(own, pos, keys)

    @staticmethod
    def _merge(node: Node) -> list[Node]:
        sources = node.value if isinstance(node.value, list) else [node]
        for source in sources:
            if not isinstance(source.value, dict):
                wrong(source.pos, "'<<' merges mappings", "name a mapping's alias")
        return list(sources)

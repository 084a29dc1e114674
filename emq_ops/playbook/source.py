"""Playbooks as nodes that know their places, from the YAML reader that config files have, too."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emq_ops.playbook.errors import PlaybookError
from emq_ops.syntax import tree
from emq_ops.syntax.errors import Position, SourceError, kind_of
from emq_ops.syntax.tree import MAX_BYTES, ListTree, MapTree, Tree


@dataclass(frozen=True, slots=True)
class YamlNode:
    """A value and where it stands. `value`: None, bool, int, float, str, a list of nodes, or a dict of them.

    `keys`: positions of a mapping's keys. `block`: a ``|`` or ``>`` text, whose content starts a line further down.
    """

    value: Any
    pos: Position
    keys: dict[str, Position] = field(default_factory=dict)
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


def node_of(value: Any, pos: Position) -> YamlNode:
    """Plain data as nodes that all stand at `pos` (values of ``-e``)."""
    if isinstance(value, dict):
        return YamlNode({str(k): node_of(v, pos) for k, v in value.items()}, pos, {str(k): pos for k in value})
    if isinstance(value, list | tuple):
        return YamlNode([node_of(v, pos) for v in value], pos)
    return YamlNode(value, pos)


def read(path: Path, shown: str) -> tuple[YamlNode, bytes]:
    """The one document in the file `path`, and its bytes. Raises PlaybookError; `shown` is how errors name the file."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as fault:
        raise PlaybookError(f"can't be read: {fault.strerror}", where=shown, fix="check the path") from fault
    return parse(raw, shown), raw


def parse(text: str | bytes, shown: str) -> YamlNode:
    """The one YAML document in `text`. Raises PlaybookError with the place of what is wrong."""
    try:
        return _node(tree.parse(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"), shown))
    except SourceError as fault:
        raise PlaybookError(fault.what, where=fault.where, fix=fault.fix) from None


def _node(found: Tree) -> YamlNode:
    if isinstance(found, MapTree):
        keys = {key: mark for key, (mark, _) in found.items.items()}
        return YamlNode({key: _node(below) for key, (_, below) in found.items.items()}, found.mark, keys)
    if isinstance(found, ListTree):
        return YamlNode([_node(below) for below in found.items], found.mark)
    return YamlNode(found.value, found.mark, block=found.block)

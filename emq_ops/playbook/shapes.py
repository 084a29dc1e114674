"""Small checks of YAML nodes, shared by the parts of the parser. Each raises PlaybookError where the node stands."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from emq_ops.playbook.errors import wrong
from emq_ops.playbook.options import DURATION
from emq_ops.playbook.source import YamlNode
from emq_ops.playbook.words import ELSEWHERE, RESERVED
from emq_ops.policy.kinds import FieldType, whole
from emq_ops.policy.words import did_you_mean, nearest
from emq_ops.protocol.errors import one_line
from emq_ops.syntax.errors import Position, kind_of

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_RETRIES = whole(0, 100_000)


def mapping(node: YamlNode, what: str) -> dict[str, YamlNode]:
    """The children of a mapping; `what` says what was expected."""
    if not isinstance(node.value, dict):
        wrong(node.pos, f"{what}; got {node.kind()}")
    return node.value


def listing(node: YamlNode, what: str) -> list[YamlNode]:
    """The children of a list; `what` says what was expected."""
    if not isinstance(node.value, list):
        wrong(node.pos, f"{what}; got {node.kind()}", "begin each item with '- '")
    return node.value


def known(node: YamlNode, keys: Iterable[str], what: str) -> None:
    """Refuses keys of a mapping that are not in `keys`."""
    allowed = list(keys)
    for key in node.value:
        if key not in allowed:
            near = nearest(key, allowed)
            hint = f"did you mean '{near}'?" if near else ELSEWHERE.get(key) or did_you_mean(key, allowed)
            wrong(node.keys[key], f"{what} has no key '{one_line(key)}'", hint)


def text(node: YamlNode | None, word: str) -> str | None:
    """A text, or None where there is no node."""
    if node is None:
        return None
    if isinstance(node.value, bool) or not isinstance(node.value, str | int | float):
        wrong(node.pos, f"'{word}' expects a text, got {node.kind()}", "quote it")
    return one_line(str(node.value).strip())


def switch(node: YamlNode | None, word: str) -> bool:
    """``true`` or ``false``; false without a node."""
    if node is None:
        return False
    if not isinstance(node.value, bool):
        wrong(node.pos, f"'{word}' expects true or false, got {node.kind()}")
    return node.value


def names(node: YamlNode | None, word: str) -> list[str]:
    """A text or a list of texts."""
    if node is None:
        return []
    parts = node.value if isinstance(node.value, list) else [node]
    for part in parts:
        if not isinstance(part.value, str) or not part.value:
            wrong(part.pos, f"'{word}' expects a name or a list of names, got {part.kind()}", "quote it")
    return [str(part.value) for part in parts]


def tags(node: YamlNode | None) -> frozenset[str]:
    """Tags: a list, or a text with commas."""
    return frozenset(tag.strip() for name in names(node, "tags") for tag in name.split(",") if tag.strip())


def variable(node: YamlNode, word: str = "a variable") -> str:
    """The name of a variable that may be set."""
    name = node.value
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        wrong(node.pos, f"{node.kind()} can't name {word}", "letters, digits and '_', not a digit first")
    if name in RESERVED:
        wrong(node.pos, f"'{name}' is a name of the language and can't be set", "use another name")
    return name


def serial(node: YamlNode | None) -> tuple[int | float, ...]:
    """Sizes of batches: whole numbers, or shares (``20%``) as 0.2."""
    if node is None:
        return ()
    out: list[int | float] = []
    for part in node.value if isinstance(node.value, list) else [node]:
        match = re.fullmatch(r"([0-9]{1,3})%", part.value) if isinstance(part.value, str) else None
        if match and 0 < int(match[1]) <= 100:
            out.append(int(match[1]) / 100 if match[1] != "100" else 1.0)
        elif isinstance(part.value, int) and not isinstance(part.value, bool) and part.value > 0:
            out.append(part.value)
        else:
            wrong(
                part.pos, f"'serial' is {part.kind()}", "a number of queues (1 or more), a share such as 20%, or a list"
            )
    if not out:
        wrong(node.pos, "'serial' is empty", "a number of queues, a share such as 20%, or a list")
    return tuple(out)


def percent(node: YamlNode | None) -> float | None:
    """A share in per cent, 0 to 100."""
    if node is None:
        return None
    value = node.value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 100:
        wrong(node.pos, f"'max_fail_percentage' is {node.kind()}", "a number from 0 to 100")
    return float(value)


def duration(value: Any, pos: Position, word: str) -> int:
    """A duration in ms."""
    return _taken(DURATION, value, pos, word)


def retries(value: Any, pos: Position) -> int:
    """How often a task is tried again."""
    return _taken(_RETRIES, value, pos, "retries")


def _taken(kind: FieldType, value: Any, pos: Position, word: str) -> int:
    try:
        return int(kind.given(value) if isinstance(value, str) else kind.take(value))
    except ValueError as fault:
        wrong(pos, f"'{word}' expects {kind.words}, got {kind_of(value)}", str(fault) or None)

"""Text that came from a secret, or derives from one, and what stands in its place wherever it is shown or stored.

A `Tainted` is its text to whoever uses it. Beside it goes the same text with marks: what came from a secret as it is
has a mark with its name, from which it can be brought back; what was made of one (a slice, upper case, a match) has a
mark from which nothing can.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from emq_ops.protocol import masking

OPEN, SHUT = "\ue0f0", "\ue0f1"  # of the private use area, so that marks can be told from text
_MADE = "~"
_MARK = re.compile(f"{OPEN}({_MADE}?)([^{SHUT}]*){SHUT}")
LEAST_MADE = 6
"""What was made of a secret is looked for in other texts, too, from this length on."""


_any = [False]
"""Whether this process made any of them."""


class Tainted(str):
    """A text with `marked`, the same with marks in the place of secrets."""

    __slots__ = ("marked",)
    marked: str

    def __new__(cls, text: str, marked: str | None = None) -> Tainted:
        made = super().__new__(cls, text)
        made.marked = f"{OPEN}{_MADE}{SHUT}" if marked is None else marked
        _any[0] = True
        return made

    def __iter__(self) -> Iterator[str]:
        return (made_of(sign, self) for sign in super().__iter__())

    def __getitem__(self, at: Any) -> str:
        part: str = made_of(super().__getitem__(at), self)
        return part


def is_any() -> bool:
    """Whether any text of this process came, or may have come, from a secret."""
    return _any[0] or masking.knows_any()


def secret(text: str, name: str) -> str:
    """The value of the secret `name`."""
    if len(text) < masking.LEAST:
        return text
    masking.remember(text, name)
    return Tainted(text, f"{OPEN}{name}{SHUT}")


def marked(text: str) -> str:
    """`text` with marks in the place of secrets."""
    return text.marked if isinstance(text, Tainted) else text


def joined(parts: Iterable[str], between: str = "") -> str:
    """The parts as one text; tainted where one of them is."""
    listed = list(parts)
    text = between.join(listed)
    if not any(isinstance(part, Tainted) for part in (*listed, between)):
        return text
    return Tainted(text, marked(between).join(map(marked, listed)))


def is_tainted(*values: Any) -> bool:
    """Whether a secret stands anywhere in plain data."""
    return bool(_names(values))


def made_of(result: Any, *sources: Any) -> Any:
    """`result`, plain data that was made of `sources`: tainted where one of these is."""
    names = _names(sources)
    return _made(result, f"{OPEN}{_MADE}{'+'.join(sorted(names))}{SHUT}") if names else result


def _made(result: Any, mark: str) -> Any:
    if isinstance(result, Tainted):
        return result
    if isinstance(result, str):
        if not result:
            return result
        if len(result) >= LEAST_MADE:
            masking.remember(result, mark[len(OPEN) + 1 : -1], made=True)
        return Tainted(result, mark)
    if isinstance(result, bool) or result is None:
        return result
    if isinstance(result, int | float):
        if len(str(result)) >= LEAST_MADE:
            masking.remember(str(result), mark[len(OPEN) + 1 : -1], made=True)
        return result
    if isinstance(result, Mapping):
        return {_made(key, mark): _made(value, mark) for key, value in result.items()}
    if isinstance(result, list | tuple):
        return [_made(value, mark) for value in result]
    return result


def _names(values: Any) -> set[str]:
    found: set[str] = set()
    rest = [values]
    while rest:
        part = rest.pop()
        if isinstance(part, Tainted):
            found.update(name for _, names in _MARK.findall(part.marked) for name in names.split("+"))
        elif isinstance(part, Mapping):
            rest += [*part, *part.values()]
        elif isinstance(part, list | tuple):
            rest += part
    return found


def shown(text: str) -> str:
    """`text` as it may be shown: ``${NAME}`` for every secret in it, as it is or remembered."""
    return masking.masked(_MARK.sub(lambda mark: f"${{{mark[2]}}}", marked(text)))


def lost(text: str) -> str | None:
    """The name of a secret of which `text`, brought back, once held something that was made."""
    found = next((mark for mark in _MARK.finditer(text) if mark[1]), None)
    return None if found is None else found[2]


def restored(text: str, values: Mapping[str, str]) -> str:
    """What `marked` made of a text, with the values of now in the place of its marks."""
    if OPEN not in text:
        return text
    found = _MARK.sub(lambda mark: mark[0] if mark[1] else values.get(mark[2], mark[0]), text)
    return Tainted(found, text)

"""Selectors of queues: a plain name is that queue and no other; ``*`` and ``?`` make it a glob.

Brackets are part of names (``mail[1]`` is one queue, and never ``mail1``). A backslash takes the meaning from the
character after it, for a queue that has ``*`` or ``?`` in its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache


def is_glob(selector: str) -> bool:
    """Whether `selector` may match more than one queue."""
    return bool(re.search(r"(?<!\\)(?:\\\\)*[*?]", selector))


def literal(selector: str) -> str:
    """The name that a selector without wildcards means."""
    return re.sub(r"\\(.)", r"\1", selector, flags=re.DOTALL)


def escaped(name: str) -> str:
    """A queue's name as a selector that means it alone."""
    return "".join(f"\\{c}" if c in "\\*?" else c for c in name)


@lru_cache(maxsize=4096)
def compiled(selector: str) -> re.Pattern[str]:
    """`selector` as a pattern for `fullmatch`, whose time grows with the text and the selector, never as a power."""
    parts: list[str] = [""]  # what stands between the stars
    escaped = False
    for c in selector:
        if escaped:
            parts[-1] += re.escape(c)
            escaped = False
        elif c == "\\":
            escaped = True
        elif c == "*":
            parts.append("")
        else:
            parts[-1] += "." if c == "?" else re.escape(c)
    if escaped:
        parts[-1] += r"\\"
    first, *rest = parts
    # A part between stars is best matched as early as it goes, and never again otherwise: no backtracking into it.
    inner = "".join(f"(?>.*?{part})" for part in rest[:-1] if part)
    return re.compile(first + inner + (".*" + rest[-1] if rest else ""), re.DOTALL)


def matches(selector: str, queue: str) -> bool:
    """Whether `selector` takes `queue`."""
    return compiled(selector).fullmatch(queue) is not None


def select(selector: str, queues: Iterable[str]) -> list[str]:
    """Those of `queues` that `selector` takes, in their order. A queue of exactly that name is taken alone."""
    names = list(queues)
    if selector in names:
        return [selector]
    pattern = compiled(selector)
    return [name for name in names if pattern.fullmatch(name)]


def specificity(selector: str) -> tuple[int, int, int]:
    """A key that sorts the more specific selector later: plain names last, then by how many characters are fixed,
    then by how few wildcards there are."""
    wild = len(re.findall(r"(?<!\\)[*?]", selector))
    fixed = len(literal(selector)) - wild
    return (1 if wild == 0 else 0, fixed, -wild)


def parts(selector: str) -> list[str]:
    """A selector cut at its wildcards, which stand by themselves."""
    return re.findall(r"(?:\\.|[^*?\\])+|[*?]", selector, re.DOTALL)


def wildcards(selector: str) -> list[str]:
    """The wildcards of a selector, in order."""
    return [part for part in parts(selector) if part in ("*", "?")]

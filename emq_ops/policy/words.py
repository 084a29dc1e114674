"""What a mistyped word was meant to be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, among: Iterable[str]) -> str | None:
    """The one of `among` that `word` was most likely meant to be, or None."""
    names = list(among)
    plain = word.lower().replace("-", "_")
    for name in names:
        if name.lower().replace("-", "_") == plain:
            return name
    found = difflib.get_close_matches(plain, names, n=1, cutoff=0.6)
    return found[0] if found else None


def near_names(name: str, known: Iterable[str]) -> str:
    """``did you mean 'orders'?``, with at most three names as they are written; empty where none is near."""
    near = difflib.get_close_matches(name, sorted(set(known)), 3, 0.6)
    return f"did you mean {' or '.join(repr(one) for one in near)}?" if near else ""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint: the nearest known word, else all of them."""
    choices = sorted(known)
    found = nearest(word, choices)
    return f"did you mean '{found}'?" if found else "one of: " + ", ".join(choices)

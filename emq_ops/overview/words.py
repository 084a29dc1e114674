"""Lengths of time in the words of an overview."""

from __future__ import annotations

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))


def span(ms: int) -> str:
    """``4 min``: a length of time (ms) in its largest unit, rounded down; below a second in ms."""
    size = abs(ms)
    for unit, word in _UNITS:
        if size >= unit:
            return f"{size // unit} {word}"
    return f"{size} ms"


def ago(at_ms: int | None, now_ms: int) -> str:
    """``4 min ago`` or ``in 4 min``; empty for None. Unix ms."""
    if at_ms is None:
        return ""
    return f"in {span(at_ms - now_ms)}" if at_ms > now_ms else f"{span(now_ms - at_ms)} ago"

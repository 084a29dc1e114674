"""Tables on stdout: the one module that lays them out.

A table is as wide as the terminal, as COLUMNS says, or 80 where neither is known. Columns that have no room go, those
of `GOES_FIRST` before others and these from the right; ``--wide`` keeps all. Numbers stand at the right.
"""

from __future__ import annotations

import base64
import itertools
import math
import os
import re
import sys
import time
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from emq_ops.protocol.errors import one_line

INSTANTS = frozenset(
    f"{name}_ms"
    for name in (
        *("started", "ended", "since", "until", "start", "end", "last_commit", "asked", "done", "made", "seen"),
        *("held_until", "maintenance_until"),
    )
)
"""Fields that hold unix ms. A table shows how long ago they were, or with ``--utc`` as UTC, without the ``_ms``; the
other forms carry the number."""
UTC_TEXTS = frozenset(
    (
        *("made", "last", "next", "first_seen", "last_seen", "since", "seen", "started", "ended", "apply_started"),
        *("last_alive", "back"),
    )
)
"""Fields that hold an instant as UTC text in all forms but a table, which shows it like those of `INSTANTS`."""
_UTC_TEXT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
GOES_FIRST = (
    *("sha256", "trigger", "files", "id", "holder", "who", "why", "runs", "missed", "every", "last", "waiting_since"),
    *("late_ms", "behind", "away", "longest_s", "oldest", "took_ms", "started_ms", "since_ms", "kind", "safe"),
)
"""Columns that are needed least, those that are missed least before the others."""
WIDEST = 2000
"""Characters of a cell that a table shows."""
NARROWEST = 12
"""Columns of a terminal that a text is folded into, at the least."""


@dataclass
class Look:
    """How this command line wants its tables."""

    wide: bool = False
    utc: bool = False
    quiet: bool = False
    """Only what failed."""
    verbose: bool = False
    """Everything unfolded, and why."""


look = Look()


def look_anew() -> None:
    """As for a new command line."""
    look.wide = look.utc = look.quiet = look.verbose = False


def plain(value: Any) -> Any:
    """`value` as JSON can say it: bytes become text, or ``{"base64": ...}`` where they are not UTF-8."""
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode("ascii")}
    if isinstance(value, Mapping):
        return {str(plain(k)): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no word for it
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)


def cell(value: Any) -> str:
    """`value` as one line of text that can't steer a terminal, without a bracket of JSON."""
    if type(value) is str:
        return one_line(value)
    value = plain(value)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        if all(type(one) is int for one in value.values()):  # counts: what is nothing is left out
            value = {name: number for name, number in value.items() if number}
        return ", ".join(f"{one_line(str(name))} {cell(one)}".rstrip() for name, one in value.items())
    if isinstance(value, list):
        return ", ".join(map(cell, value))
    return one_line(value if isinstance(value, str) else str(value))


def shown(name: str, value: Any) -> Any:
    """`value` of the field `name` as a table shows it: an instant in words, all else as it is."""
    if name in INSTANTS and isinstance(value, int) and not isinstance(value, bool):
        return instant_words(value)
    if name in UTC_TEXTS and isinstance(value, str) and not look.utc and _UTC_TEXT.fullmatch(value):
        return instant_words(int(datetime.fromisoformat(value).timestamp() * 1000))
    return value


def instant_words(ms: int, now_ms: int | None = None) -> str:
    """``4 min ago``, ``in 2 h``; as UTC with ``--utc``."""
    if look.utc:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    away = (ms - (time.time_ns() // 1_000_000 if now_ms is None else now_ms)) / 1000
    size = abs(away)
    for unit, seconds in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        if size >= (2 * seconds if seconds > 1 else 1):
            count = round(size / seconds)
            return f"in {count} {unit}" if away > 0 else f"{count} {unit} ago"
    return "now"


def heading(name: str) -> str:
    """What a table calls the field `name`."""
    return name.removesuffix("_ms") if name in INSTANTS else name


def width_of_screen() -> int:
    """Columns that there are."""
    if os.environ.get("COLUMNS", "").isdecimal():
        return int(os.environ["COLUMNS"]) or 80
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 80
    except (OSError, ValueError, AttributeError):
        return 80


def write_table(rows: Iterable[Mapping[str, Any]], columns: Sequence[str], *, header: bool = True) -> list[str]:
    """Writes rows, and returns the columns that had no room."""
    held = list(rows)
    numeric: dict[str, bool] = {}
    texts: dict[str, list[str]] = {}
    for name in columns:
        column, numeric[name] = _column(name, [row.get(name) for row in held])
        texts[name] = [heading(name), *column] if header else column
    widths = {name: max(map(width, set(column)), default=0) for name, column in texts.items()}
    room = width_of_screen()
    gone = [] if look.wide or look.verbose else _without_room(widths, room)
    kept = [name for name in columns if name not in gone]
    if not (look.wide or look.verbose) and (over := _total([widths[name] for name in kept]) - room) > 0 and kept:
        widest = max(kept, key=lambda name: (widths[name], kept.index(name)))
        widths[widest] = max(NARROWEST, widths[widest] - over)
    out = sys.stdout
    # A text that stands in a column many times is folded and padded once.
    folded = [_drawn(texts[name], widths[name], numeric[name]) for name in kept]
    empty = [" " * widths[name] for name in kept]
    for row in zip(
        *([part[text] for text in texts[name]] for name, part in zip(kept, folded, strict=True)), strict=True
    ):
        for parts in itertools.zip_longest(*row):
            line = "  ".join([part if part is not None else gap for part, gap in zip(parts, empty, strict=True)])
            out.write(line.rstrip() + "\n")
    return gone


def _column(name: str, values: Sequence[Any]) -> tuple[list[str], bool]:
    """The cells of a column, and whether they are numbers."""
    known: dict[Any, str] = {}
    found: list[str] = []
    numeric = True
    for value in values:
        kind = type(value)
        plainly = kind is str or kind is int or value is None
        text = known.get(value) if plainly else None
        if text is None:
            text = _cut(cell(shown(name, value)))
            if plainly:
                known[value] = text
        found.append(text)
        if numeric and value is not None and (name in INSTANTS or (kind is not int and kind is not float)):
            numeric = False
    return found, numeric


def _drawn(texts: Iterable[str], size: int, numeric: bool) -> dict[str, list[str]]:
    """By text its lines, as wide as the column."""
    return {text: [_padded(line, size, numeric) for line in _folded(text, size)] for text in set(texts)}


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + 2 * max(0, len(widths) - 1)


def _without_room(widths: Mapping[str, int], room: int) -> list[str]:
    """Which columns go so that the others fit; the first two stay."""
    names = list(widths)
    order = [name for name in GOES_FIRST if name in names[2:]]
    order += [name for name in reversed(names[2:]) if name not in order]
    gone: list[str] = []
    for name in order:
        if _total([widths[kept] for kept in names if kept not in gone]) <= room:
            break
        gone.append(name)
    for name in reversed(gone.copy()):  # a narrow one may have room where a wide one had none
        if _total([widths[kept] for kept in names if kept == name or kept not in gone]) <= room:
            gone.remove(name)
    return [name for name in names if name in gone]


def _cut(text: str) -> str:
    if len(text) > WIDEST:  # nobody reads more of it in a column
        return f"{text[:WIDEST]}... ({len(text):,} characters; --output json shows all)"
    return text


def width(text: str) -> int:
    """Columns of a terminal that `text` takes."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _padded(text: str, size: int, numeric: bool) -> str:
    space = " " * (size - width(text))
    return space + text if numeric else text + space


def _folded(text: str, size: int) -> list[str]:
    """`text` in lines of at most `size`."""
    if width(text) <= size:
        return [text]
    lines, line, used = [], "", 0
    for c in text:
        if used + width(c) > size:
            lines.append(line)
            line, used = "", 0
        line, used = line + c, used + width(c)
    return [*lines, line]

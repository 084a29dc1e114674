"""Renderers of data: one table, JSON document, JSON lines or CSV on stdout, whatever the texts contain.

Texts come from strangers (error messages, payloads): control characters are escaped in tables, and a CSV cell that a
spreadsheet would take for a formula is led by an apostrophe.
"""

from __future__ import annotations

import base64
import csv
import itertools
import json
import math
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from emq_ops.protocol.errors import one_line

Tell = Callable[[str], None]
"""Takes lines, in place of stderr."""

Row = Mapping[str, Any]
INSTANTS = frozenset(
    f"{name}_ms"
    for name in (
        *("started", "ended", "since", "until", "start", "end", "last_commit", "asked", "done"),
        *("held_until", "maintenance_until"),
    )
)
"""Fields that hold unix ms. A table shows them as UTC, without the ``_ms``; the other forms carry the number."""
PAGE = 1000
WIDEST = 2000
"""Characters of a cell that a table shows."""
_FORMULA = tuple("=+-@\t\r＝＋－＠")  # the wide ones are formulas too, in East Asian spreadsheets


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
    """`value` as one line of text that can't steer a terminal."""
    value = plain(value)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return one_line(
        value if isinstance(value, str) else json.dumps(value) if isinstance(value, dict | list) else str(value)
    )


def shown(name: str, value: Any) -> Any:
    """`value` of the field `name` as a table shows it: an instant as UTC text, counts as `recovered 3, dead 1`, texts
    side by side, nothing for what is empty; all else as it is."""
    if name in INSTANTS and isinstance(value, int) and not isinstance(value, bool):
        return datetime.fromtimestamp(value / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if isinstance(value, dict) and all(type(one) is int for one in value.values()):
        return ", ".join(f"{key} {number}" for key, number in value.items() if number)
    if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
        return ", ".join(value)
    return value


def heading(name: str) -> str:
    """What a table calls the field `name`."""
    return name.removesuffix("_ms") if name in INSTANTS else name


def csv_cell(value: Any) -> str:
    """`value` for a CSV that may be opened in a spreadsheet: never a formula."""
    text = cell(value)
    return "'" + text if text[:1] in _FORMULA and not isinstance(value, int | float) else text


def emit_rows(rows: Iterable[Row], output: str, columns: Sequence[str]) -> None:
    """Writes rows in the form `output`, as they come: never all of them are held. JSON forms carry every field, the
    others just `columns`. A table is laid out anew after every PAGE rows."""
    out = sys.stdout
    if output == "json":
        led = "[\n"
        for row in rows:
            out.write(led + textwrap.indent(json.dumps(plain(row), indent=2), "  "))
            led = ",\n"
        out.write("[]\n" if led == "[\n" else "\n]\n")
    elif output == "jsonl":
        for row in rows:
            out.write(json.dumps(plain(row), separators=(",", ":")) + "\n")
    elif output == "csv":
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([csv_cell(row.get(c)) for c in columns] for row in rows)
    else:
        for first, page in _pages(rows):
            _table(page, columns, header=first)


def _pages(rows: Iterable[Row]) -> Iterator[tuple[bool, list[Row]]]:
    source, first = iter(rows), True
    while (page := list(itertools.islice(source, PAGE))) or first:
        yield first, page
        first = False


def _table(rows: Iterable[Row], columns: Sequence[str], *, header: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    out = sys.stdout
    table = Table(box=None, header_style="bold", pad_edge=False, show_header=header)
    for column in columns:
        table.add_column(heading(column), overflow="fold")
    for row in rows:
        table.add_row(*[_text(shown(c, row.get(c))) for c in columns])
    Console(file=out, highlight=False, soft_wrap=False, width=None if out.isatty() else 200).print(table)


def _text(value: Any) -> Any:
    from rich.text import Text

    text = cell(value)
    if len(text) > WIDEST:  # laying out megabytes would take minutes, and nobody reads them in a column
        text = f"{text[:WIDEST]}... ({len(text):,} characters; --output json shows all)"
    return Text(text)


def emit_one(row: Row, output: str) -> None:
    """Writes one object: a JSON object, or ``name  value`` lines."""
    if output == "json":
        sys.stdout.write(json.dumps(plain(row), indent=2) + "\n")
    elif output in ("jsonl", "csv"):
        emit_rows([row], output, list(row))
    else:
        width = max((len(heading(k)) for k in row), default=0)
        for name, value in row.items():
            sys.stdout.write(f"{heading(name):<{width}}  {cell(shown(name, value))}".rstrip() + "\n")


def counted(number: int, what: str) -> str:
    """``1 queue``, ``2 queues``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def say(text: str) -> None:
    """A word to the operator, on stderr; whatever stands in it, it can't steer a terminal."""
    sys.stderr.write("\n".join(map(one_line, text.split("\n"))) + "\n")

"""Renderers of data: one table, JSON document, JSON lines or CSV on stdout, whatever the texts contain.

Texts come from strangers (error messages, payloads): control characters are escaped in tables, and a CSV cell that a
spreadsheet would take for a formula is led by an apostrophe.
"""

from __future__ import annotations

import csv
import itertools
import json
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from emq_ops.cli.table import cell, heading, look, plain, shown, write_table
from emq_ops.protocol.errors import one_line

Tell = Callable[[str], None]
"""Takes lines, in place of stderr."""

Row = Mapping[str, Any]
_held: list[str] = []
PAGE = 1000
_FORMULA = tuple("=+-@\t\r＝＋－＠")  # the wide ones are formulas too, in East Asian spreadsheets


def csv_cell(value: Any) -> str:
    """`value` for a CSV that may be opened in a spreadsheet: never a formula."""
    value = plain(value)
    text = one_line(json.dumps(value)) if isinstance(value, dict | list) else cell(value)
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
        gone: dict[str, None] = {}
        for first, page in _pages(rows):
            gone |= dict.fromkeys(write_table(page, columns, header=first))
        if gone:
            say(f"emq-ops: no room for {', '.join(map(heading, gone))} (--wide shows all)")


def _pages(rows: Iterable[Row]) -> Iterator[tuple[bool, list[Row]]]:
    source, first = iter(rows), True
    while (page := list(itertools.islice(source, PAGE))) or first:
        yield first, page
        first = False


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


def tell_old(old: str, new: str) -> None:
    """An old spelling that still works, and what it is called now."""
    say(f"note: {old} is now {new}; the old one goes with the next minor version")


def say(text: str) -> None:
    """A word to the operator, on stderr; whatever stands in it, it can't steer a terminal. With ``--quiet`` it waits
    for the end of the command: see `say_held`."""
    line = "\n".join(map(one_line, text.split("\n"))) + "\n"
    if look.quiet:
        _held.append(line)
    else:
        sys.stderr.write(line)


def say_held(*, failed: bool = True) -> None:
    """Writes what ``--quiet`` held back, where something failed or somebody is asked; else drops it."""
    if failed:
        sys.stderr.writelines(_held)
    _held.clear()

"""What is wrong with a file that an operator wrote, and where: one line each."""

from __future__ import annotations

from typing import Any, NamedTuple

from emq_ops.protocol.errors import BadInputError, one_line


class Position(NamedTuple):
    """A place in a file; line and column count from 1. Line 0: the value is built in, no file says it."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file

    def down(self, lines: int) -> Position:
        """The same column, `lines` further down."""
        return Position(self.file, self.line + lines, self.column)


BUILT_IN = Position("built-in default", 0, 0)


class SourceError(BadInputError):
    """A fault in the YAML. `mark`: file, line and column; `path`: the dotted path of the value; `expected`, `got`
    and `nearest` (the valid key or value that comes closest) where they apply; `others`: further faults found."""

    def __init__(
        self,
        what: str,
        mark: Position | None = None,
        *,
        path: str = "",
        expected: str | None = None,
        got: str | None = None,
        nearest: str | None = None,
        fix: str | None = None,
    ) -> None:
        if expected is not None:
            wanted = f"expected {expected}" + (f", got {got}" if got is not None else "")
            what = f"{what}: {wanted}" if what else wanted
        shown_path = path if len(path) <= 160 else f"{path[:80]}...{path[-60:]}"
        text = f"{shown_path}: {what}" if path else what
        hint = f"did you mean '{nearest}'?" if nearest else None
        advice = "; ".join(part for part in (hint, fix) if part) or None
        super().__init__(text, where=str(mark) if mark is not None else None, fix=advice)
        self.mark = mark
        self.path = path
        self.expected = expected
        self.got = got
        self.nearest = nearest
        self.others: tuple[SourceError, ...] = ()

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text} [and {len(self.others)} more; `emq-ops validate` lists all]" if self.others else text

    def lines(self) -> list[str]:
        """Every fault, a line each."""
        return [super().__str__(), *(str(other) for other in self.others)]


def shown(value: object, limit: int = 60) -> str:
    """`value` as an error may show it: one short line."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    text = one_line(str(value))
    text = text if len(text) <= limit else text[: limit - 3] + "..."
    return f"'{text}'" if isinstance(value, str) else text


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

"""One command over several queues: each in its turn, one report of all; a fault of one does not stop the others."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.exits import exit_code
from emq_ops.cli.output import say
from emq_ops.cli.table import look
from emq_ops.protocol.errors import EmqError, UnreachableError
from emq_ops.protocol.globs import is_glob


def several(selectors: Sequence[str], names: Sequence[Any]) -> bool:
    """Whether a command line means more than one thing, by what it says or by what that takes: then its JSON is a
    list."""
    return len(names) != 1 or any(map(is_glob, selectors))


class QueueTurns:
    """The turns of a command, one a queue or stream. One alone is an object on stdout, and its faults are the
    command's; of `many` there are rows, also where it ends in the middle, faults are told, and the exit code is that of
    the first. With ``--quiet`` just what failed is shown."""

    def __init__(self, context: CommandContext, columns: Sequence[str], *, many: bool) -> None:
        self._context, self._columns, self.many = context, list(columns), many
        self._rows: list[Mapping[str, Any]] = []
        self._turn: list[Mapping[str, Any]] = []
        self._code = 0
        self._failed = False

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """One turn. Raises UnreachableError: the others would have to wait for it as long."""
        self._turn, self._failed = [], True
        try:
            yield
            self._failed = False
        except typer.Exit as end:
            if not self.many:
                raise
            self._code = self._code or end.exit_code
        except EmqError as fault:
            if not self.many or isinstance(fault, UnreachableError):
                raise
            say(f"emq-ops: {fault}")
            self._code = self._code or exit_code(fault)
        finally:
            if self._failed or not look.quiet:
                self._tell()

    def add(self, row: Mapping[str, Any], alone: Mapping[str, Any] | None = None) -> None:
        """What a turn tells; `alone`: its table where there is no other."""
        instead = not self.many and alone is not None and self._context.output == "table"
        self._turn.append(alone if instead and alone is not None else row)

    def _tell(self) -> None:
        if self.many:
            self._rows += self._turn
        else:
            for row in self._turn:
                self._context.emit_one(row)

    def __enter__(self) -> QueueTurns:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, where: TracebackType | None
    ) -> None:
        table = self._context.output == "table"
        if self.many and (self._rows or (fault is None and not table)):
            columns = self._columns
            if table:
                columns = [
                    name for name in columns if any(row.get(name) not in (None, 0, "", []) for row in self._rows)
                ]
            self._context.emit_rows(self._rows, columns or self._columns[:1])
        if fault is None and self._code:
            raise typer.Exit(self._code)

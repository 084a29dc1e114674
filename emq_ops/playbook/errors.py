"""What can be wrong with a playbook (bad input, with a position) and with a task (a failure on one queue)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from emq_ops.protocol.errors import BadInputError, EmqError


@dataclass(frozen=True, slots=True)
class Pos:
    """Where something stands: the file as the user named it, line and column from 1."""

    file: str
    line: int
    col: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.col}"

    def down(self, lines: int) -> Pos:
        """The same column, `lines` further down."""
        return Pos(self.file, self.line + lines, self.col)


class PlaybookError(BadInputError):
    """A mistake in a playbook, or in what it was given. `where` is ``file:line:col``."""


class TaskFailure(EmqError):
    """A task did not reach its goal on one queue: a condition that never came, an assertion, a refusal."""


def wrong(pos: Pos | str, what: str, fix: str | None = None) -> NoReturn:
    """Raises PlaybookError at `pos`."""
    raise PlaybookError(what, where=str(pos), fix=fix)

"""What can be wrong with a playbook (bad input, with a position) and with a task (a failure on one queue)."""

from __future__ import annotations

from typing import NoReturn

from emq_ops.protocol.errors import BadInputError, EmqError
from emq_ops.syntax.errors import Position


class PlaybookError(BadInputError):
    """A mistake in a playbook, or in what it was given. `where` is ``file:line:col``."""


class TaskFailure(EmqError):
    """A task did not reach its goal on one queue: a condition that never came, an assertion, a refusal."""


def wrong(pos: Position | str, what: str, fix: str | None = None) -> NoReturn:
    """Raises PlaybookError at `pos`."""
    raise PlaybookError(what, where=str(pos), fix=fix)

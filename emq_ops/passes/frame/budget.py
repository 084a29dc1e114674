"""How much of the caller's time a pass uses for its work: all but what it needs to say how it ended."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable

from emq_ops.protocol import deadline
from emq_ops.protocol.errors import EmqError

_RESERVE_SECONDS = 1.0
_RESERVE_SHARE = 0.2


class TimeBudget:
    """Made when a pass begins, inside the caller's ``with deadline(seconds)``."""

    def __init__(self) -> None:
        total = deadline.remaining()
        self._reserve = 0.0 if total is None else min(_RESERVE_SECONDS, _RESERVE_SHARE * total)

    @property
    def left(self) -> float | None:
        """Seconds left for work, None without a limit."""
        left = deadline.remaining()
        return None if left is None else max(0.0, left - self._reserve)

    @property
    def up(self) -> bool:
        """Whether no further slice should be begun."""
        left = deadline.remaining()
        return left is not None and left <= self._reserve


def at_the_end(work: Callable[[], None]) -> bool:
    """Does what must be done after a failure, such as recording it, even where the caller's time has run out. Its own
    failure is not told: the first one is. Returns whether it was done."""
    with contextlib.suppress(EmqError):
        contextvars.Context().run(work)
        return True
    return False

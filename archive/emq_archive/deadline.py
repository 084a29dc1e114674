"""How long a call may take: handed from a pass down into every socket."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from emq_archive.errors import DeadlineError
from emq_ops.protocol.deadline import within


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on a monotonic clock (seconds), or none; the bound that a pass set for its thread
    (`emq_ops.protocol.deadline`) is in force as well. `clock` may be a simulated one."""

    at: float | None = None
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)

    @classmethod
    def after(cls, seconds: float | None, clock: Callable[[], float] = time.monotonic) -> Deadline:
        """`seconds` from now; None: never."""
        return cls(None if seconds is None else clock() + seconds, clock)

    def left(self, most: float = float("inf")) -> float:
        """Seconds left, 0 at the least and `most` at the most."""
        bound = within(most)
        own = most if self.at is None else max(0.0, self.at - self.clock())
        return own if bound is None else min(own, bound)

    @property
    def passed(self) -> bool:
        return self.left() <= 0

    def check(self, doing: str) -> None:
        """Raises DeadlineError when the time is up; `doing` says what was not begun."""
        if self.passed:
            raise DeadlineError(f"the time is up before {doing}", fix="what is done stays; the next run goes on")


NEVER = Deadline()

"""How an act is carried out, and at which rate."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from emq_ops.passes.acts.declared import SLICE, ActPolicy
from emq_ops.passes.events import Emit, nowhere
from emq_ops.passes.frame.context import Context


@dataclass(frozen=True, slots=True)
class ActOptions:
    """At most `rate` jobs a second (None: what the run had, else RATE), `slice_size` a script. `why` and `filters` are
    recorded with who did it; `trigger`: which door it came through. `keep_attempts`: how many attempts a
    requeued job keeps at the most (None: all). `protect`: nothing may be removed from the queue.
    `to`: where a move brings the jobs, a queue and a lane there ("": grouped ones keep theirs).
    `progress`: called with how many jobs of how many (0: nobody knows) were seen to, slice by slice.
    `sleep` waits between slices (seconds); whatever it raises ends the run early."""

    rate: int | None = None
    slice_size: int = SLICE
    why: str = ""
    filters: Mapping[str, Any] = field(default_factory=dict)
    protect: bool = False
    keep_attempts: int | None = None
    to: tuple[str, str] | None = None
    trigger: str = "command"
    emit: Emit = nowhere
    progress: Callable[[int, int], None] | None = None
    sleep: Callable[[float], None] = time.sleep


class RateLimiter:
    """Lets through at most `rate` jobs a second, in slices."""

    def __init__(self, rate: int, most: int = SLICE, sleep: Callable[[float], None] = time.sleep) -> None:
        self.rate, self._sleep = rate, sleep
        self.slice = max(1, min(most, rate // 4))
        self._next = time.monotonic()

    @classmethod
    def of(cls, context: Context) -> RateLimiter:
        """As the run's policy and order say."""
        policy: ActPolicy = context.policy
        return cls(policy.rate, policy.slice, context.order.options["sleep"])

    def wait(self, jobs: int) -> None:
        """Waits until the jobs that went through before are paid for, then takes `jobs` more."""
        now = time.monotonic()
        if self._next > now:
            self._sleep(self._next - now)
        self._next = max(self._next, now) + jobs / self.rate

"""How a cycle divides its time, and how often a trim alone may make it ship."""

from __future__ import annotations

from collections.abc import Callable

from emq_ops.protocol import deadline

READ_SHARE = 0.6
"""Of a cycle's time, how much reading may take: what was read should also be shipped, and trimmed."""

BURST = 20
"""Ships for the sake of a trim alone that may come at once; one more every `ship_after`. So a stream of light traffic
with a small `keep` does not become a segment a cycle."""
MANY = 1000
"""Where so many records wait, a trim ships them at once all the same."""


def reading_ends() -> Callable[[], bool]:
    """Tells whether reading has had its share of the time that the caller gives."""
    given = deadline.remaining()
    if given is None:
        return deadline.passed
    return lambda: (deadline.remaining() or 0.0) <= (1 - READ_SHARE) * given


class Allowance:
    """`burst` at once, and one more every `every_ms`."""

    def __init__(self, burst: int, every_ms: int) -> None:
        self._burst, self._every_ms = burst, max(1, every_ms)
        self._left = float(burst)
        self._at: int | None = None

    def take(self, now_ms: int) -> bool:
        """Whether one more may go now."""
        if self._at is not None:
            self._left = min(self._burst, self._left + max(0, now_ms - self._at) / self._every_ms)
        self._at = now_ms
        if self._left < 1:
            return False
        self._left -= 1
        return True

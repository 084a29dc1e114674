"""The two clocks of the daemon: the wall, which people and cron lines mean, and the one that never steps."""

from __future__ import annotations

import time
from datetime import UTC, datetime

STEP_SECONDS = 1.0
"""The wall is said to have stepped when it moved so much against the steady clock."""


def now() -> datetime:
    """The wall clock, UTC."""
    return datetime.now(UTC)


def steady() -> float:
    """Seconds on a clock that never steps."""
    return time.monotonic()


def now_ms() -> int:
    """The wall clock, unix ms."""
    return int(now().timestamp() * 1000)


def at(ms: int) -> datetime:
    """Unix ms as an instant, UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC)


def ms_of(instant: datetime) -> int:
    """An instant as unix ms."""
    return round(instant.timestamp() * 1000)


class StepWatch:
    """Tells by how much the wall was stepped since it was last asked."""

    def __init__(self) -> None:
        self._offset = now().timestamp() - steady()

    def moved(self) -> bool:
        """Whether the wall was stepped and nobody was told yet."""
        return abs(now().timestamp() - steady() - self._offset) >= STEP_SECONDS

    def stepped(self) -> float:
        """Seconds that the wall was set forward (negative: back) since the last call; 0.0 for mere drift."""
        offset = now().timestamp() - steady()
        step, self._offset = offset - self._offset, offset
        return step if abs(step) >= STEP_SECONDS else 0.0

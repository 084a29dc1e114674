"""What one evaluation may spend: processor time, and bytes that it reads and makes. Counted where things are done."""

from __future__ import annotations

import time
from typing import Any

CPU_SECONDS = 1.0
MAX_VALUE = 16 << 20
"""Bytes that one value may take, roughly."""
MAX_WORK = 64 << 20
"""Bytes, roughly, that one evaluation may read and make."""
EACH = 128
"""Charged for each call and each turn of a loop, whatever it does."""


class TooLarge(ValueError):
    """A value outgrew its bound."""


class TooLong(ValueError):
    """An evaluation took more processor time than it may."""


class EvaluationBudget:
    """The means of one evaluation, by one thread."""

    def __init__(self) -> None:
        self._left = MAX_WORK
        self._until = time.thread_time() + CPU_SECONDS

    def spend(self, size: int) -> None:
        """Takes `size` bytes. Raises TooLarge, TooLong."""
        self._left -= size
        if self._left < 0:
            raise TooLarge("takes too much memory or time: does it loop for ever?")
        if time.thread_time() > self._until:
            raise TooLong(f"takes more than {CPU_SECONDS:g} s of CPU: does it loop for ever?")

    def read(self, *values: Any) -> None:
        """Takes what it costs to look at `values` whole."""
        self.spend(EACH + sum(weigh(value, self._left + 1) for value in values))

    def make(self, size: int) -> None:
        """Takes `size` bytes for one new value. Raises TooLarge for one that outgrows MAX_VALUE."""
        if size > MAX_VALUE:
            raise TooLarge(f"a value larger than {MAX_VALUE >> 20} MiB")
        self.spend(size)


def weigh(value: Any, most: int) -> int:
    """The size of plain data in bytes, roughly; `most` at most, and no dearer than that."""
    left, rest = most, [value]
    while rest and left > 0:
        part = rest.pop()
        left -= 16
        if isinstance(part, str):
            left -= len(part)
        elif isinstance(part, dict):
            left -= 16 * len(part)
            if left > 0:
                rest += [*part, *part.values()]
        elif isinstance(part, list | tuple):
            left -= 16 * len(part)
            if left > 0:
                rest += part
    return most - max(0, left)

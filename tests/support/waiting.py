"""Waiting for a condition: asked again and again, by a machine that others use too."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

SHARE = 4
"""Asking takes at most this part of a processor's time, so what is waited for is not held up by it."""
LONGEST = 0.5
"""Seconds between two questions."""


def first_true(ask: Callable[[], T], seconds: float, failed: Callable[[], str], pause: float = 0.005) -> T:
    """The first truthy answer of `ask`, asked every `pause` seconds, or less often where that is dear; fails with
    what `failed` says after `seconds`."""
    until = time.monotonic() + seconds
    while True:
        began = time.thread_time()
        answer = ask()
        if answer:
            return answer
        assert time.monotonic() < until, failed()
        time.sleep(min(LONGEST, max(pause, (time.thread_time() - began) * (SHARE - 1))))

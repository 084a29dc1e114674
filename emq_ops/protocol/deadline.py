"""How long the caller still wants to wait: one bound that every socket below honours.

A pass sets it once (``with deadline(30): ...``); whoever blocks asks `remaining`. It is carried by the context of the
thread, so a thread that a pass starts must set its own.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextvars import ContextVar

from emq_ops.protocol.errors import DeadlineError

_until: ContextVar[float | None] = ContextVar("emq_ops_deadline", default=None)
_end: list[float | None] = [None]


def end_by(seconds: float | None) -> None:
    """Bounds every thread of this process to `seconds` from now: it is about to end. None takes the bound away."""
    _end[0] = None if seconds is None else time.monotonic() + seconds


@contextlib.contextmanager
def deadline(seconds: float | None) -> Iterator[None]:
    """Bounds everything inside to `seconds` from now (None: not at all). An outer, earlier bound stays in force."""
    if seconds is None:
        yield
        return
    until = time.monotonic() + seconds
    outer = _until.get()
    token = _until.set(until if outer is None else min(until, outer))
    try:
        yield
    finally:
        _until.reset(token)


def remaining() -> float | None:
    """Seconds left (0.0 when it has passed), or None where nobody set a bound."""
    until, end = _until.get(), _end[0]
    if end is not None:
        until = end if until is None else min(until, end)
    return None if until is None else max(0.0, until - time.monotonic())


def within(seconds: float | None) -> float | None:
    """`seconds`, or what is left of the bound where that is less. None: no bound at all."""
    left = remaining()
    if left is None or seconds is None:
        return left if seconds is None else seconds
    return min(left, seconds)


def passed() -> bool:
    """Returns whether a bound was set and its time is up."""
    return remaining() == 0.0


def check(where: str | None = None) -> None:
    """Raises DeadlineError when the bound has passed."""
    if passed():
        raise DeadlineError("the time given ran out", where=where, fix="give it more time, or less to do")

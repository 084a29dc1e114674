"""How often Python looks for garbage that refers to itself: a short command never needs it, a long one does."""

from __future__ import annotations

import gc


def collect_seldom() -> None:
    """Nearly all that a command makes lives as long as it: looking for garbage often would be a third of its time."""
    gc.set_threshold(50_000, 20, 50)


def collect_for_long() -> None:
    """For a command that runs until it is stopped: what its work leaves behind goes within seconds or minutes."""
    gc.set_threshold(5_000, 10, 10)


def collect_no_more() -> None:
    """For the end: the interpreter would look through all that a command made, twice, for garbage that goes with the
    process, a fifth of what a command costs."""
    gc.disable()
    gc.freeze()

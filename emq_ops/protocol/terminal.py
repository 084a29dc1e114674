"""What may be drawn on a stream: colour, and lines that are drawn over."""

from __future__ import annotations

import os
import sys
from typing import TextIO


def takes_colour(stream: TextIO | None = None) -> bool:
    """Whether text on a stream (stdout) may be coloured: a terminal that can, and nobody objects (``NO_COLOR``)."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or draws_over(stream)


def draws_over(stream: TextIO | None = None) -> bool:
    """Whether a stream (stdout) is a terminal on which a line can be drawn over."""
    return (stream or sys.stdout).isatty() and os.environ.get("TERM") != "dumb"

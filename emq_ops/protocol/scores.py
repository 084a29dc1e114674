"""Scores of sorted sets as the numbers that passes and the ledger work with."""

from __future__ import annotations

import math

_EDGE = 1 << 62


def score_ms(score: bytes) -> int:
    """A score as unix ms. One that no clock ever shows (infinite, or beyond what a database column holds) comes as the
    nearest that it does: whoever judges the job refuses it, as in the distant past or future."""
    number = float(score)
    if math.isinf(number) or abs(number) >= _EDGE:
        return _EDGE if number > 0 else -_EDGE
    return int(number)

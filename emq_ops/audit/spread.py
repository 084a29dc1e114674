"""Distributions in bounded memory: deaths over time with bins that widen as needed, and ages in fixed classes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

MOST_BINS = 200
_WIDTHS = [
    1000 * n for n in (1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 86400, 7 * 86400, 30 * 86400, 365 * 86400)
]  # seconds to years


@dataclass(slots=True)
class Histogram:
    """How many of each kind fell into which stretch of time. `width_ms`: of a bin, growing so that there are never more
    than MOST_BINS; a bin is named by its beginning, unix ms."""

    width_ms: int = _WIDTHS[0]
    bins: dict[int, Counter[str]] = field(default_factory=dict)

    def add(self, at_ms: int, kind: str, count: int = 1) -> None:
        """Counts one more."""
        self.bins.setdefault(at_ms - at_ms % self.width_ms, Counter())[kind] += count
        while self._span() > MOST_BINS:
            self._widen()

    def _span(self) -> int:
        # Empty bins in between are drawn too.
        return (max(self.bins) - min(self.bins)) // self.width_ms + 1 if self.bins else 0

    def _widen(self) -> None:
        self.width_ms = next((w for w in _WIDTHS if w > self.width_ms), 2 * self.width_ms)
        old, self.bins = self.bins, {}
        for at_ms, counts in old.items():
            self.bins.setdefault(at_ms - at_ms % self.width_ms, Counter()).update(counts)

    def kinds(self) -> list[str]:
        """Every kind, sorted."""
        return sorted({kind for counts in self.bins.values() for kind in counts})

    def as_rows(self) -> list[dict[str, object]]:
        """The bins in order."""
        return [{"from_ms": at, "to_ms": at + self.width_ms, **self.bins[at]} for at in sorted(self.bins)]


AGE_CLASSES: tuple[tuple[int, str], ...] = (
    (60_000, "< 1 min"),
    (600_000, "< 10 min"),
    (3_600_000, "< 1 h"),
    (6 * 3_600_000, "< 6 h"),
    (86_400_000, "< 1 d"),
    (7 * 86_400_000, "< 7 d"),
    (30 * 86_400_000, "< 30 d"),
)
OLDER, UNRECORDED = "older", "not recorded"
AGE_NAMES = (*(name for _, name in AGE_CLASSES), OLDER, UNRECORDED)


def age_class(age_ms: int | None) -> str:
    """The class of an age; None: nobody recorded the death."""
    if age_ms is None:
        return UNRECORDED
    return next((name for limit, name in AGE_CLASSES if age_ms < limit), OLDER)

"""The screen of ``emq-ops top``: what is chosen on it, and what a key changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from emq_ops.overview.watch import WatchedQueue

COLUMNS = ("queue", "waiting", "active", "scheduled", "dead", "done/s", "died/min", "oldest", "lag", "next", "wrong")
"""In the order in which a narrow terminal keeps them: the last ones go first, but for `wrong`."""
ENTER, ESCAPE, BACKSPACE, UP, DOWN, PAGE_UP, PAGE_DOWN = "enter", "escape", "backspace", "up", "down", "pgup", "pgdn"


@dataclass(slots=True)
class Question:
    """What is asked before an act: its text, and what ``y`` does (it returns a line that says what was done)."""

    text: str
    act: Callable[[], str]


@dataclass(slots=True)
class Screen:
    """What stands on the screen. `said`: the last line of an act; `away`: why and since when the numbers are old."""

    found: Mapping[str, WatchedQueue] = field(default_factory=dict)
    sort: str = "wrong"
    text: str = ""
    typing: bool = False
    unhealthy: bool = False
    at: int = 0
    opened: str = ""
    helping: bool = False
    question: Question | None = None
    said: str = ""
    away: str = ""
    where: str = ""
    height: int = 24

    @property
    def names(self) -> list[str]:
        """The queues that are listed, in order."""
        listed = [name for name in self.found if self.text.casefold() in name.casefold()]
        if self.unhealthy:
            listed = [name for name in listed if self.found[name].standing.problems]
        return sorted(listed, key=lambda name: (_weight(self.found[name], self.sort), name))

    @property
    def chosen(self) -> str:
        """The queue under the cursor, or the one that is open; empty for none."""
        if self.opened:
            return self.opened
        names = self.names
        return names[min(self.at, len(names) - 1)] if names else ""

    @property
    def rows(self) -> int:
        """How many queues the screen has room for."""
        return max(1, self.height - 5)

    @property
    def shown(self) -> list[str]:
        """The queues on the screen now."""
        names = self.names
        first = self.first(len(names))
        return names[first : first + self.rows]

    def first(self, count: int) -> int:
        at = min(self.at, max(0, count - 1))
        return max(0, min(at - self.rows // 2, count - self.rows))

    def key(self, key: str) -> bool:
        """What a key changes here; False where it is for the caller (``p``, ``r``, ``q``)."""
        if self.typing:
            return self._typed(key)
        if key in (ESCAPE, ENTER, "?", "!", "/"):
            self._mode(key)
            return True
        if key in ("s", "S"):
            step = 1 if key == "s" else -1
            self.sort = COLUMNS[(COLUMNS.index(self.sort) + step) % len(COLUMNS)]
            return True
        step = {UP: -1, "k": -1, DOWN: 1, "j": 1, PAGE_UP: -self.rows, PAGE_DOWN: self.rows}.get(key, 0)
        if step and not self.opened:
            self.at = max(0, min(self.at + step, len(self.names) - 1))
        return bool(step)

    def _typed(self, key: str) -> bool:
        if key in (ENTER, ESCAPE):
            self.typing = False
            self.text = self.text if key == ENTER else ""
        elif key == BACKSPACE:
            self.text = self.text[:-1]
        elif len(key) == 1 and key.isprintable():
            self.text += key
        self.at = 0
        return True

    def _mode(self, key: str) -> None:
        if key == "?":
            self.helping = not self.helping
        elif key == "!":
            self.unhealthy, self.at = not self.unhealthy, 0
        elif key == "/":
            self.typing, self.opened = True, ""
        elif key == ENTER:
            self.opened = self.opened or self.chosen
        elif self.opened or self.helping:
            self.opened, self.helping = "", False
        else:
            self.text, self.at = "", 0


def _weight(one: WatchedQueue, column: str) -> float:
    """Lowest first: most of what the column counts."""
    look = one.standing.look
    if column == "queue":
        return 0
    if column == "wrong":
        return -len(one.standing.problems)
    if look is None:
        return float("inf")
    values = {
        "done/s": one.rates.completed,
        "died/min": one.rates.died,
        "oldest": None if look.oldest_ms is None else look.now_ms - look.oldest_ms,
        "lag": look.lag_ms,
        "next": None if one.next_ms is None else -one.next_ms,
    }
    value = values[column] if column in values else getattr(look, column)
    return float("inf") if value is None else -value

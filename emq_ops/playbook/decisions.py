"""What a module decides, and what it did: plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from emq_ops.database.records import AsRow

CHANGE, SAME, UNKNOWN = "change", "same", "unknown"
"""What a plan says: would change, would not, cannot know."""


@dataclass
class Decision(AsRow):
    """What a module would do. `count`, `items`: how many of what, and which (ids, lanes, fields); `removals`: how many
    jobs would go for good; `duty`: it acts though nothing would change (it looks, and notes what it sees); `diff`:
    lines ``(what, before, after)``; `data`: for the module's own `act`; `returns`: the
    values that a check run registers; `settles`: settings of the queue that it leaves behind."""

    verdict: str = SAME
    count: int = 0
    items: list[str] = field(default_factory=list)
    removals: int = 0
    duty: bool = False
    message: str = ""
    diff: list[tuple[str, Any, Any]] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)
    returns: dict[str, Any] = field(default_factory=dict)
    settles: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> Decision:
        """Back from `as_row`."""
        return cls(**{**row, "diff": [tuple(line) for line in row["diff"]]})


@dataclass
class Result:
    """What a module did. `changed`: whether anything did; `error`: why it failed after all (it may have done part of
    it); the rest as in Decision (`diff` None: the decision's lines of what was done); `returns`: what `register`
    keeps."""

    changed: bool = False
    count: int = 0
    items: list[str] = field(default_factory=list)
    message: str = ""
    returns: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    diff: list[tuple[str, Any, Any]] | None = None

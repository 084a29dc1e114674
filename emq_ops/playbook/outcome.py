"""What became of a task on a queue, and the tally of a queue: plain data that the ledger keeps and renderers draw."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from emq_ops.playbook.registry import Plan

OK, CHANGED, SKIPPED, FAILED, STOPPED = "ok", "changed", "skipped", "failed", "stopped"


@dataclass
class Outcome:
    """One task on one queue. `status`: ok, changed, skipped, failed, or stopped (the play ended before it).

    `result`: what `register` keeps; `facts`: variables it set; `count`, `items`, `diff`: as in Plan; `unknown`: check
    mode could not know; `bad_input`: it failed for a mistake in the playbook, which nothing rescues.
    """

    status: str = OK
    message: str = ""
    result: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    count: int = 0
    items: list[str] = field(default_factory=list)
    diff: list[tuple[str, Any, Any]] = field(default_factory=list)
    removals: int = 0
    unknown: bool = False
    bad_input: bool = False
    attempts: int = 1
    plans: list[Plan] = field(default_factory=list)
    """What each item of a prediction would do; never stored."""

    @property
    def failed(self) -> bool:
        """Whether the queue can't go on from here."""
        return self.status in (FAILED, STOPPED)

    @property
    def rescuable(self) -> bool:
        """Whether a ``rescue`` section may take over."""
        return self.status == FAILED and not self.bad_input

    def as_row(self) -> dict[str, Any]:
        """As plain data."""
        row = asdict(self)
        del row["plans"]
        return row

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> Outcome:
        """Back from `as_row`."""
        return cls(**{**row, "diff": [tuple(line) for line in row["diff"]]})


@dataclass
class Tally:
    """A queue's line in the recap. `ok` counts changed tasks too, as Ansible does."""

    ok: int = 0
    changed: int = 0
    skipped: int = 0
    failed: int = 0
    rescued: int = 0
    unknown: int = 0

    def add(self, outcome: Outcome) -> None:
        """Counts one outcome."""
        if outcome.status in (OK, CHANGED):
            self.ok += 1
            self.changed += outcome.status == CHANGED
            self.unknown += outcome.unknown
        elif outcome.status == SKIPPED:
            self.skipped += 1
        elif outcome.status == FAILED:
            self.failed += 1

    def as_row(self) -> dict[str, int]:
        """As plain data."""
        return asdict(self)

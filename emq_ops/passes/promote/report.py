"""What a run of the pump did."""

from __future__ import annotations

from dataclasses import dataclass, field

from emq_ops.passes.report import PassReport


@dataclass(slots=True)
class PromoteReport(PassReport):
    """`promoted`: how many scheduled jobs went to wait; `promoted_jobs`: the first of them, without those whose reply
    was lost; `fired`, `fired_jobs`: occurrences of repeatables that were admitted, likewise; `bad`: repeatables that
    can't fire, and why; `delivered`: signals that parents elsewhere heard; `undeliverable`: those set aside."""

    promoted: int = 0
    promoted_jobs: list[str] = field(default_factory=list)
    fired: int = 0
    fired_jobs: list[str] = field(default_factory=list)
    bad: dict[str, str] = field(default_factory=dict)
    delivered: int = 0
    undeliverable: int = 0

    def counts(self) -> dict[str, int]:
        """The numbers, for the ledger."""
        names = ("promoted", "fired", "delivered", "undeliverable")
        return {name: getattr(self, name) for name in names if getattr(self, name)}

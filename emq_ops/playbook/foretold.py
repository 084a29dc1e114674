"""What earlier tasks of a check run would have done to a queue, so that later predictions build on it, or say that they
can't."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from emq_ops.playbook.decisions import Decision
from emq_ops.playbook.outcome import TaskOutcome
from emq_ops.playbook.registry import Module

PENDING, ACTIVE, SCHEDULED, DEAD, RECORDS, WINDOWS = "pending", "active", "scheduled", "dead", "records", "windows"
ALL_SETS = frozenset((PENDING, ACTIVE, SCHEDULED, DEAD))


@dataclass
class Foretold:
    """One queue of a check run. `settings`: by name, as `Decision.settles` says them; `moved`: what would be another
    than it is, and the task that would make it so."""

    settings: dict[str, Any] = field(default_factory=dict)
    moved: dict[str, str] = field(default_factory=dict)

    def note(self, module: Module, name: str, plan: Decision, outcome: TaskOutcome) -> None:
        """A task was predicted."""
        if outcome.changed:
            self.settings |= plan.settles
        if outcome.changed or outcome.unknown:
            for what in module.moves:
                self.moved.setdefault(what, name)

    def doubt(self, module: Module, outcome: TaskOutcome) -> None:
        """Marks a prediction that rests on what would be another by then."""
        names = dict.fromkeys(self.moved[what] for what in sorted(module.reads & self.moved.keys()))
        if names and not outcome.failed:
            told = " and ".join(f"'{name}'" for name in names)
            outcome.unknown = True
            outcome.message = "; ".join([*filter(None, [outcome.message]), f"as it is before {told}"])
            outcome.result["msg"] = outcome.message

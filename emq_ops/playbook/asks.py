"""What a run asks its operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from emq_ops.playbook.model import Task
from emq_ops.playbook.outcome import TaskOutcome


@dataclass(frozen=True)
class Confirmation:
    """What a destructive task would do, for the operator to confirm: jobs that go, on which queues."""

    task: Task
    outcomes: dict[str, TaskOutcome]

    @property
    def changes(self) -> int:
        """On how many queues it would change something."""
        return sum(outcome.status == "changed" or outcome.unknown for outcome in self.outcomes.values())


@dataclass(frozen=True)
class Asks:
    """What a run asks its operator. `confirm`: may this destructive task go on; None: it needs no asking (``--yes``).
    `step`: run this task? True, False (skip it), or None (all the rest without asking)."""

    confirm: Callable[[Confirmation], bool] | None = None
    step: Callable[[Task, Sequence[str]], bool | None] | None = None

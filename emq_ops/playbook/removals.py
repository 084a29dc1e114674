"""How many jobs of a queue one run of a playbook may take away: one bound, whatever the form.

Loops, tries, several tasks and what the run did before it was resumed count together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from emq_ops.playbook.decisions import Decision, Result
from emq_ops.playbook.errors import TaskFailure
from emq_ops.playbook.model import Task


class Removals:
    """Of one run. Each queue is used by one thread at a time."""

    def __init__(self, before: Mapping[str, int]) -> None:
        """`before`: what earlier processes of this run took away, by queue."""
        self._taken = Counter(before)

    def check(self, task: Task, queue: str, plan: Decision, most: int | None) -> None:
        """Raises TaskFailure where `plan` would take more than the bound leaves."""
        taken = self._taken[queue]
        if most is None or not plan.removals or taken + plan.removals <= most:
            return
        before = f" after {taken} that this run removed already" if taken else ""
        raise TaskFailure(
            f"{task.module.name} would remove {plan.removals} jobs{before}, more than max_removals ({most})",
            fix="narrow it, or raise max_removals in the config",
        )

    def begun(self, queue: str, plan: Decision) -> None:
        """The plan is about to be carried out, or foretold: until it ended it counts as it says."""
        self._taken[queue] += plan.removals

    def ended(self, queue: str, plan: Decision, result: Result) -> None:
        """The plan was carried out: it counts as it came out."""
        if plan.removals:
            self._taken[queue] += min(result.count, plan.removals) - plan.removals

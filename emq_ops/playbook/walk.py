"""Which task comes next on one queue: blocks, rescue, always and handlers, as a generator that is fed outcomes.

Fed the recorded outcomes of an earlier life, it stands where that life stood; that is all there is to a resume.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from emq_ops.playbook.model import Play, Task, TaskOrBlock
from emq_ops.playbook.outcome import FAILED, STOPPED, RecapLine, TaskOutcome

Selects = Callable[[Task], bool]
_Walk = Generator[Task, TaskOutcome, TaskOutcome | None]


class QueueWalk:
    """One queue's way through one play. `task` is the next task, None at the end; `failed` whether it fell out;
    `falling`: a task failed and nothing has rescued that (yet); `origin`: the task at which that trouble began."""

    def __init__(self, queue: str, play: Play, selects: Selects, tally: RecapLine, facts: dict[str, Any]) -> None:
        self.queue, self.tally, self.facts = queue, tally, facts
        self.failed = False
        self.falling = False
        self.origin: Task | None = None
        self._stopped = False
        self._cleaning = False
        self._fell = ""
        self._notified: set[str] = set()
        self._selects = selects
        self._steps = self._play(play)
        self.task: Task | None = next(self._steps, None)

    def feed(self, outcome: TaskOutcome) -> None:
        """The outcome of `task`; moves on."""
        task = self.task
        assert task is not None
        self.tally.add(outcome)
        self.facts.update(outcome.facts)
        if task.register is not None and outcome.status != STOPPED:
            self.facts[task.register] = outcome.result
        if outcome.changed:
            self._notified.update(task.notify)
        try:
            self.task = self._steps.send(outcome)
        except StopIteration:
            self.task = None

    def stop(self) -> None:
        """Ends the queue's play here; its ``always`` sections and notified handlers still come."""
        if not self._stopped:
            self._stopped = True
            if self.task is not None and not self._cleaning:
                self.feed(TaskOutcome(STOPPED))

    def _play(self, play: Play) -> _Walk:
        failure = yield from self._walk(play.tasks, cleaning=False)
        self.failed = failure is not None and failure.status == FAILED
        for handler in play.handlers:
            if handler.name in self._notified:
                self._cleaning = True
                outcome = yield handler
                if outcome.failed:
                    self.failed = True
                    self.origin = self.origin or handler
        return None

    def _walk(self, steps: tuple[TaskOrBlock, ...], *, cleaning: bool) -> _Walk:
        for step in steps:
            if isinstance(step, Task):
                if not self._selects(step):
                    continue
                if self._stopped and not cleaning:
                    self.origin = self.origin or step
                    return TaskOutcome(STOPPED)
                self._cleaning = cleaning
                outcome = yield step
                if outcome.failed:
                    self.origin = self.origin or step
                    self._fell = step.name
                    self.falling = outcome.status == FAILED
                    return outcome
                continue
            before = self.origin
            failure = yield from self._walk(step.body, cleaning=cleaning)
            if failure is not None and failure.rescuable and step.rescue:
                self.tally.failed -= 1
                self.tally.rescued += 1
                self.falling = False
                self.facts |= {"failed_task": self._fell, "failed_result": failure.result}
                failure = yield from self._walk(step.rescue, cleaning=cleaning)
                if failure is None:
                    self.origin = before
            if step.always:
                later = yield from self._walk(step.always, cleaning=True)
                failure = failure or later
            if failure is not None:
                return failure
        return None

"""The tasks of a revision: which pass, on which queue, by which policy and timetable. Values only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from emq_ops.config.policies import dead_policy, stalled_policy, stream_policy
from emq_ops.deploy.document import Document
from emq_ops.policy.models import DeadPolicy, Policy, StalledPolicy, StreamPolicy
from emq_ops.policy.schedule import Schedule
from emq_ops.protocol.errors import EmqError

STALLED, DEAD, STREAM = "stalled", "dead", "stream:"


@dataclass(frozen=True, slots=True)
class Task:
    """One pass of one queue. `name`: ``stalled``, ``dead`` or ``stream:<name>``."""

    queue: str
    name: str
    policy: Policy
    schedule: Schedule

    @property
    def key(self) -> tuple[str, str]:
        return self.queue, self.name

    @property
    def text(self) -> str:
        """``orders/stalled``: for people, and as the seed of jitter."""
        return f"{self.queue}/{self.name}"

    @property
    def stream(self) -> str:
        """The stream's name, '' for other tasks."""
        return self.name.removeprefix(STREAM) if self.name.startswith(STREAM) else ""

    @property
    def stores(self) -> bool:
        """Whether a run may wait for databases and object stores of the archive."""
        return isinstance(self.policy, StreamPolicy) or (isinstance(self.policy, DeadPolicy) and self.policy.archive)

    @property
    def timeout_s(self) -> float | None:
        """How long a run may take, seconds."""
        return None if self.schedule.timeout_ms is None else self.schedule.timeout_ms / 1000


def _task(queue: str, name: str, policy: Policy) -> Task:
    return Task(queue, name, policy, policy.schedule)


def _policies(
    wanted: Mapping[str, Any], env: Mapping[str, str], protect: bool
) -> Iterator[tuple[str, Callable[[], Policy]]]:
    """The passes of one queue of a revision: the task's name, and what makes its policy (BadInputError where a
    reference can't be resolved)."""
    if fields := wanted.get("stalled"):
        yield STALLED, partial(stalled_policy, fields, env, protect=protect)
    if fields := wanted.get("dead"):
        yield DEAD, partial(dead_policy, fields, env, protect=protect)
    for name, fields in (wanted.get("streams") or {}).items():
        yield STREAM + name, partial(stream_policy, fields, env, protect=protect)


def tasks_of_queue(queue: str, wanted: Mapping[str, Any], env: Mapping[str, str]) -> tuple[list[Task], EmqError | None]:
    """The tasks of one queue of a revision, and why one of them could not be made."""
    protect = bool(wanted.get("protect"))
    found: list[Task] = []
    why: EmqError | None = None
    for name, make in _policies(wanted, env, protect):
        try:
            policy = make()
        except EmqError as fault:
            why = why or EmqError(f"{name}: {fault.what}", where=fault.where, fix=fault.fix)
            continue
        if isinstance(policy, DeadPolicy) and (protect or (policy.keep is None and policy.max_age_ms is None)):
            continue
        found.append(_task(queue, name, policy))
    return found, why


@dataclass(frozen=True, slots=True)
class TaskSet:
    """All tasks of a revision, and the queues of which one or more could not be made, with the reason."""

    tasks: dict[tuple[str, str], Task]
    faults: dict[str, EmqError]

    @property
    def queues(self) -> list[str]:
        return sorted({task.queue for task in self.tasks.values()})

    def longest_lease_ms(self, queue: str) -> int:
        """The queue's longest lease as its stalled policy says it."""
        task = self.tasks.get((queue, STALLED))
        return task.policy.lease_ms if task is not None and isinstance(task.policy, StalledPolicy) else 30_000


def task_set(document: Document, live: Iterable[str], env: Mapping[str, str]) -> TaskSet:
    """The tasks of a revision on a server that has the queues `live`: those that were named at apply, and those that
    its globs take and that came since. A task that can't be made does not stop the others."""
    wanted: dict[str, Mapping[str, Any]] = dict(document.queues)
    faults: dict[str, EmqError] = {}
    fresh = [queue for queue in live if queue not in wanted]
    if fresh and document.data["config"]:
        layers = document.layers(env)
        if layers.patterns:
            for queue in layers.queues(fresh):
                if queue in wanted:
                    continue
                try:
                    effective = layers.effective(queue)
                except EmqError as fault:
                    faults[queue] = fault
                    continue
                wanted[queue] = {**effective.passes, "protect": effective.protect}
    tasks: dict[tuple[str, str], Task] = {}
    for queue, below in wanted.items():
        found, why = tasks_of_queue(queue, below, env)
        tasks |= {task.key: task for task in found}
        if why is not None:
            faults[queue] = why
    return TaskSet(tasks, faults)

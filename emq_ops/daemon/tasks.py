"""The tasks of a revision: which pass, on which queue, by which policy and timetable. Values only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from emq_ops.config.policies import dead_policy, stalled_policy, stream_policy, timetable
from emq_ops.config.schedule import Schedule
from emq_ops.deploy.document import Document
from emq_ops.passes.policy import DeadPolicy, Policy, StalledPolicy, StreamPolicy
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
    return Task(queue, name, policy, timetable(policy.schedule))


def tasks_of_queue(queue: str, wanted: Mapping[str, Any], env: Mapping[str, str]) -> list[Task]:
    """The tasks of one queue of a revision. Raises BadInputError where a reference can't be resolved."""
    protect = bool(wanted.get("protect"))
    found: list[Task] = []
    if wanted.get("stalled"):
        found.append(_task(queue, STALLED, stalled_policy(wanted["stalled"], env, protect=protect)))
    dead = wanted.get("dead")
    if dead:
        policy = dead_policy(dead, env, protect=protect)
        if not protect and (policy.keep is not None or policy.max_age_ms is not None):
            found.append(_task(queue, DEAD, policy))
    for name, fields in (wanted.get("streams") or {}).items():
        found.append(_task(queue, STREAM + name, stream_policy(fields, env, protect=protect)))
    return found


@dataclass(frozen=True, slots=True)
class TaskSet:
    """All tasks of a revision, and the queues whose tasks could not be made, with the reason."""

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
    its globs take and that came since. A queue whose tasks can't be made does not stop the others."""
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
                wanted[queue] = {
                    "stalled": effective.stalled,
                    "dead": effective.dead,
                    "streams": effective.streams,
                    "protect": effective.protect,
                }
    tasks: dict[tuple[str, str], Task] = {}
    for queue, below in wanted.items():
        try:
            tasks |= {task.key: task for task in tasks_of_queue(queue, below, env)}
        except EmqError as fault:
            faults[queue] = fault
    return TaskSet(tasks, faults)

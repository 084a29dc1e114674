"""The tasks of a revision: which pass, on which queue, by which policy and timetable. Values only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from emq_ops.config import policies
from emq_ops.deploy.document import Document
from emq_ops.passes.frame.contract import Pass
from emq_ops.passes.registry import PASSES
from emq_ops.policy.schedule import Schedule
from emq_ops.protocol.errors import EmqError

LEASE_MS = 30_000
"""How long leases of a queue are taken to be, where no policy says it."""


@dataclass(frozen=True, slots=True)
class PassTask:
    """One pass of one queue. `target`: the stream of an archive, '' for a pass that a queue has once; `schedule`: the
    policy's, or another; `lease_ms`: the queue's longest job lease."""

    queue: str
    what: Pass
    policy: Any
    schedule: Schedule
    target: str = ""
    lease_ms: int = LEASE_MS

    @property
    def name(self) -> str:
        """``stalled``, ``dead``, ``stream:<name>`` ..."""
        return self.what.task(self.target)

    @property
    def key(self) -> tuple[str, str]:
        return self.queue, self.name

    @property
    def text(self) -> str:
        """``orders/stalled``: for people, and as the seed of jitter."""
        return f"{self.queue}/{self.name}"

    @property
    def kind(self) -> str:
        """``stalled``, ``dead``, ``stream`` ...: what idle runs are counted by."""
        return self.name.split(":")[0]

    @property
    def stores(self) -> bool:
        """Whether a run may wait for databases and object stores of the archive."""
        return self.what.needs_stores(self.policy)

    @property
    def timeout_s(self) -> float | None:
        """How long a run may take, seconds."""
        return None if self.schedule.timeout_ms is None else self.schedule.timeout_ms / 1000


def _sections(wanted: Mapping[str, Any]) -> Iterator[tuple[Pass, str, Mapping[str, Any]]]:
    """The passes of one queue of a revision: which, of what, and the fields of its policy."""
    for what in PASSES:
        below = wanted.get(what.section) or {}
        if what.many:
            yield from ((what, target, fields) for target, fields in below.items())
        elif below:
            yield what, "", below


def tasks_of_queue(
    queue: str, wanted: Mapping[str, Any], env: Mapping[str, str], read: dict[str, Any] | None = None
) -> tuple[list[PassTask], EmqError | None]:
    """The tasks of one queue of a revision, and why one of them could not be made (a reference that can't be
    resolved). `read`: the policies that were read before by the same `env`; most queues have the same."""
    read = {} if read is None else read
    protect = bool(wanted.get("protect"))
    found: list[tuple[Pass, Any, str]] = []
    why: EmqError | None = None
    for what, target, fields in _sections(wanted):
        try:
            said = f"{what.name} {protect} {fields!r}"
            if said not in read:
                read[said] = policies.policy(what.policy, fields, env, protect=protect)
            policy = read[said]
        except EmqError as fault:
            why = why or EmqError(f"{what.task(target)}: {fault.what}", where=fault.where, fix=fault.fix)
            continue
        if what.runs(policy):
            found.append((what, policy, target))
    lease_ms = max((policy.lease_ms for _, policy, _ in found if hasattr(policy, "lease_ms")), default=LEASE_MS)
    return [PassTask(queue, what, policy, policy.schedule, target, lease_ms) for what, policy, target in found], why


@dataclass(frozen=True, slots=True)
class TaskSet:
    """All tasks of a revision, and the queues of which one or more could not be made, with the reason."""

    tasks: dict[tuple[str, str], PassTask]
    faults: dict[str, EmqError]

    @property
    def queues(self) -> list[str]:
        return sorted({task.queue for task in self.tasks.values()})

    @property
    def made(self) -> dict[str, list[PassTask]]:
        """The tasks of each queue of which every one could be made."""
        found: dict[str, list[PassTask]] = {}
        for task in self.tasks.values():
            if task.queue not in self.faults:
                found.setdefault(task.queue, []).append(task)
        return found

    def longest_lease_ms(self, queue: str) -> int:
        """The queue's longest lease as its stalled policy says it."""
        return next((task.lease_ms for task in self.tasks.values() if task.queue == queue), LEASE_MS)


def task_set(document: Document, live: Iterable[str], env: Mapping[str, str], before: TaskSet | None = None) -> TaskSet:
    """The tasks of a revision on a server that has the queues `live`: those that were named at apply, and those that
    its globs take and that came since. A task that can't be made does not stop the others. `before`: of the same
    revision a while ago; what could be made then stays as it was."""
    made = {} if before is None else before.made
    wanted: dict[str, Mapping[str, Any]] = dict(document.queues)
    faults: dict[str, EmqError] = {}
    found: dict[str, list[PassTask]] = {}
    read: dict[str, Any] = {}
    for queue in live:
        if queue not in wanted and queue in made:
            found[queue] = made[queue]
    fresh = [queue for queue in live if queue not in wanted and queue not in found]
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
    for queue, below in wanted.items():
        if queue in made:
            found[queue] = made[queue]
            continue
        found[queue], why = tasks_of_queue(queue, below, env, read)
        if why is not None:
            faults[queue] = why
    tasks = {task.key: task for of_queue in found.values() for task in of_queue}
    return TaskSet(tasks, faults)

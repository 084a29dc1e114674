"""What a daemon knows by itself of its queues, tasks and passes: read from memory, so that whoever asks costs neither
server nor state anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from emq_ops.daemon import clock
from emq_ops.daemon.daemon import Daemon
from emq_ops.daemon.restrictions import ActiveRestriction
from emq_ops.daemon.rules import RuleFacts, most_failures
from emq_ops.overview.look import QueueLook

SILENT_SECONDS = 40.0
"""A daemon that wrote nothing into the state for so long is not well, whatever it believes."""


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """One task that this daemon keeps the timetable of. `kind`: ``stalled``, ``dead``, ``stream`` ...; `late_ms`: of
    its last run; `overdue_s`: for how long its next has been due."""

    queue: str
    task: str
    kind: str
    runs: int
    missed: int
    failures: int
    late_ms: int
    overdue_s: float


@dataclass(frozen=True, slots=True)
class Telemetry:
    """`queues`: of the revision that runs; `led`: by this daemon, `others`: by another; `looks`: the last look at each
    that is led, `looked_s`: for how long the last whole round of looks has been over; `memory`: used by the fullest
    node, as a part of its limit; `archive`: segments, records and bytes in the store, None until they are known."""

    queues: list[str]
    led: frozenset[str]
    others: frozenset[str]
    tasks: list[TaskFacts]
    looks: Mapping[str, QueueLook]
    looked_s: float | None
    restrictions: tuple[ActiveRestriction, ...]
    drifted: Mapping[str, int]
    memory: float | None
    archive: tuple[int, int, int] | None

    @property
    def without_leader(self) -> int:
        """How many queues nobody leads, as far as this daemon knows."""
        return len(set(self.queues) - self.led - self.others)


def telemetry(daemon: Daemon) -> Telemetry:
    """How things stand now. From any thread."""
    queues = daemon.queues
    monitor, looks = daemon.monitor, daemon.monitor.looks
    taken = looks.taken_at
    return Telemetry(
        queues=queues,
        led=frozenset(queue for queue in queues if daemon.leads.fence_of(queue) is not None),
        others=frozenset(daemon.leads.others),
        tasks=_tasks(daemon),
        looks=looks.found,
        looked_s=None if taken is None else clock.steady() - taken,
        restrictions=tuple(monitor.restrictions),
        drifted=daemon.drifting.found,
        memory=looks.memory,
        archive=monitor.archive,
    )


def health(daemon: Daemon) -> dict[str, Any]:
    """Whether a daemon does its work (``ok``): the server takes its leases, its last write into the state is not long
    ago, and it runs the revision that is in force. From any thread."""
    leads, fault = daemon.leads, daemon.chores.fault
    silent = clock.steady() - daemon.written_at
    if fault is None and silent > SILENT_SECONDS:
        fault = f"nothing was written into the state for {silent:.0f} s"
    refused = daemon.applied.refused
    facts = {"revision": daemon.revision.number, "leads": leads.led, "away": leads.away, "faults": leads.faults}
    facts |= {"behind": daemon.behind.count, "drifted": len(daemon.drifting.found)}
    return {"ok": not (leads.away or fault or refused), **facts, "refused_revision": refused, "state_fault": fault}


def known(daemon: Daemon) -> RuleFacts:
    """What alert rules are judged by here. Rules of the server are judged by whoever leads the first queue that
    anybody leads. From the daemon's main thread."""
    told = telemetry(daemon)
    first = min(told.led | told.others, default=None)
    windows = [one for one in told.restrictions if one.kind == "maintenance"]
    held = frozenset(one.queues for one in told.restrictions if one.kind == "held")
    server = {
        "memory": told.memory or 0.0,
        "without_leader": told.without_leader,
        "overdue": sum(task.overdue_s > 0 for task in told.tasks),
    }
    return RuleFacts(
        looks={queue: look for queue, look in told.looks.items() if queue in told.led},
        failures=most_failures((task.queue, task.failures) for task in told.tasks),
        drift=told.drifted if daemon.drifting.looked else None,
        held=held,
        quiet=lambda queue: any(one.covers(queue) for one in windows),
        queues=frozenset(told.queues),
        server=server,
        of_server=first in told.led and told.looked_s is not None,
        now_ms=daemon.monitor.looks.now_ms(),
    )


def _tasks(daemon: Daemon) -> list[TaskFacts]:
    due = daemon.behind.ages()
    found = []
    for task in daemon.tasks():
        mark = daemon.book.mark(task)
        late = mark.late_ms or 0
        found.append(
            TaskFacts(
                task.queue, task.name, task.kind, mark.runs, mark.missed, mark.failures, late, due.get(task.key, 0.0)
            )
        )
    return found

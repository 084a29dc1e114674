"""Cheap looks at what is due: many queues in one flush, so that a queue with nothing to do costs no pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from emq_archive.reports import Report
from emq_archive.write.facts import Facts
from emq_ops.daemon import clock
from emq_ops.daemon.tasks import DEAD, STALLED, Task
from emq_ops.passes.observe.queue_state import QueueState, observe_many
from emq_ops.policy.models import StreamPolicy
from emq_ops.protocol.errors import EmqError, UnreachableError
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Server

GLANCE_SECONDS = 1.0
"""How long a node may take to say how its queues stand, before the others' turn."""


@dataclass(frozen=True, slots=True)
class Rest:
    """A stream as a cycle left it with nothing more to do. `until`: by when (steady clock, s) what is folded and not
    shipped must be looked at again, None where nothing is."""

    facts: Facts
    policy: StreamPolicy
    until: float | None = None


class Probe:
    """Remembers how each queue and stream stood when its last pass had nothing left to do."""

    def __init__(self, server: Server) -> None:
        self._quick = server.hurried(GLANCE_SECONDS)
        self.server = server
        self.unanswered: set[str] = set()
        """Queues of the last look whose node did not answer."""
        self._sights: dict[str, QueueState] = {}
        self._rests: dict[tuple[str, str], Rest] = {}
        self.seen_ms: dict[str, int] = {}

    def idle(self, tasks: Sequence[Task]) -> set[tuple[str, str]]:
        """The keys of those that have nothing to do. One that can't be told is not idle: its pass will say why."""
        self.unanswered = set()
        streams = [task for task in tasks if task.key in self._rests]
        seen = {task.queue for task in tasks if task.name in (STALLED, DEAD) and task.queue in self._sights}
        calm: set[tuple[str, str]] = set()
        for queue, sight in observe_many(self._quick, sorted(seen)).items():
            before = self._sights.get(queue)
            if isinstance(sight, UnreachableError):
                self.unanswered.add(queue)
            if before is None or isinstance(sight, EmqError) or sight.unrecorded or not _same(before, sight):
                continue
            self.seen_ms[queue] = sight.now_ms
            # The ledger agrees with the dead set, as it did: none that is dead, none to trim.
            calm |= {(queue, STALLED)} if sight.due == 0 else set()
            calm |= {(queue, DEAD)} if sight.dead == 0 else set()
        return {task.key for task in tasks if task.key in calm} | self._idle_streams(streams)

    def _idle_streams(self, tasks: Sequence[Task]) -> set[tuple[str, str]]:
        calls = [([keys_of(task.queue).stream(task.stream)], ()) for task in tasks]
        found: set[tuple[str, str]] = set()
        for task, reply in zip(tasks, self._quick.run_many(load("stream_facts"), calls, readonly=True), strict=True):
            if isinstance(reply, UnreachableError):
                self.unanswered.add(task.queue)
            if isinstance(reply, EmqError):
                continue
            rest = self._rests[task.key]
            facts = Facts.of(reply)
            if rest.until is not None and clock.steady() >= rest.until:
                continue
            if rest.policy == task.policy and _unmoved(rest.facts, facts) and not _aged(facts, rest.policy):
                found.add(task.key)
        return found

    def swept(self, queue: str, sight: QueueState | None) -> None:
        """A sweep is through: how things stood right before it, None where it left something to do."""
        if sight is None:
            self._sights.pop(queue, None)
        else:
            self._sights[queue] = sight

    def facts(self, task: Task) -> Facts:
        """How the stream stands: to be asked right before its cycle."""
        reply = self.server.run(load("stream_facts"), [keys_of(task.queue).stream(task.stream)], readonly=True)
        return Facts.of(reply)

    def folded(self, task: Task, before: Facts | None, report: Report | None) -> None:
        """A cycle is through: how the stream stood right before it, and its report; None where it failed."""
        self._rests.pop(task.key, None)
        policy = task.policy
        if report is None or before is None or not isinstance(policy, StreamPolicy):
            return
        moved = report.folded or report.shipped or report.trimmed
        left = report.lag_records or report.refused or report.unstorable
        over = policy.keep is not None and before.length > policy.keep
        if not (moved or left or over):
            ship_s = policy.archiving.ship_after_ms / 1000
            self._rests[task.key] = Rest(before, policy, clock.steady() + ship_s if report.unshipped else None)

    def forget(self, queues: Mapping[str, object] | Sequence[str] | None = None) -> None:
        """What was remembered of these queues (None: of all) proves nothing any more."""
        names = None if queues is None else set(queues)
        self._sights = {} if names is None else {q: s for q, s in self._sights.items() if q not in names}
        self._rests = {} if names is None else {k: r for k, r in self._rests.items() if k[0] not in names}


def _same(before: QueueState, now: QueueState) -> bool:
    return (before.run_id, before.replid, before.promoted, before.dead, before.failed) == (
        now.run_id,
        now.replid,
        now.promoted,
        now.dead,
        now.failed,
    )


def _unmoved(before: Facts, now: Facts) -> bool:
    return (before.run_id, before.exists, before.last_generated, before.entries_added, before.length, before.first) == (
        now.run_id,
        now.exists,
        now.last_generated,
        now.entries_added,
        now.length,
        now.first,
    )


def _aged(facts: Facts, policy: StreamPolicy) -> bool:
    """Whether the oldest entry is old enough to be trimmed by now."""
    return (
        policy.max_age_ms is not None and facts.first is not None and facts.first[0] < facts.now_ms - policy.max_age_ms
    )

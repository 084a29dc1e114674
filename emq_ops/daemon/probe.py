"""Cheap looks at what is due: many queues in one flush, so that a queue with nothing to do costs no pass."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from emq_ops.daemon import clock
from emq_ops.daemon.tasks import PassTask
from emq_ops.passes.frame.frame import PassOutcome
from emq_ops.passes.frame.order import Facts, Glance
from emq_ops.passes.frame.stores import Stores
from emq_ops.passes.observe.queue_state import QueueState
from emq_ops.protocol.errors import EmqError, UnreachableError
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Server

GLANCE_SECONDS = 1.0
"""How long a node may take to say how its queues stand, before the others' turn."""
_Key = tuple[str, str]


class Probe:
    """Remembers how each queue and stream stood when a task's last run had nothing left to do."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._rests: dict[_Key, tuple[Any, float]] = {}
        self._idle_queues: dict[str, QueueState] = {}
        self.seen_ms: dict[str, int] = {}
        self._quick = server.hurried(GLANCE_SECONDS)
        self.unanswered: set[str] = set()
        """Queues of the last look whose node did not answer."""

    def idle(self, tasks: Sequence[PassTask]) -> set[_Key]:
        """The keys of those that have nothing to do. One that can't be told is not idle: its pass will say why."""
        asked = [task for task in tasks if not task.what.rests or self._rest_of(task) is not None]
        looks = {task.key: task.what.loaded.glance(task.queue, task.target) for task in asked}
        glances = {key: glance for key, glance in looks.items() if glance is not None}
        seen = self._look(glances.values())
        self.unanswered = set()
        found: set[_Key] = set()
        for task in asked:
            if task.key not in glances:
                continue
            glance = glances[task.key]
            now = seen[glance.script, glance.keys]
            if isinstance(now, UnreachableError):
                self.unanswered.add(task.queue)
            if isinstance(now, EmqError):
                continue
            rest = self._rest_of(task)
            state, since = rest if rest is not None else (None, clock.steady())
            if not task.what.due(Facts(task.policy, now, state, clock.steady() - since)):
                found.add(task.key)
                if isinstance(now, QueueState):
                    self.seen_ms[task.queue] = now.now_ms
        return found

    def _rest_of(self, task: PassTask) -> tuple[Any, float] | None:
        rest = self._rests.get(task.key)
        if rest is None and task.what.observes and task.queue in self._idle_queues:
            return self._idle_queues[task.queue], 0.0
        return rest

    def _look(self, glances: Iterable[Glance]) -> dict[tuple[str, tuple[str, ...]], Any]:
        """What each look saw, asked once and in one flush a script; in place of one that failed stands its error."""
        wanted = {(glance.script, glance.keys): glance for glance in glances}
        seen: dict[tuple[str, tuple[str, ...]], Any] = {}
        for script in sorted({name for name, _ in wanted}):
            ours = [key for key in wanted if key[0] == script]
            replies = self._quick.run_many(load(script), [(list(keys), ()) for _, keys in ours], readonly=True)
            for key, reply in zip(ours, replies, strict=True):
                seen[key] = reply if isinstance(reply, EmqError) else wanted[key].parse(reply)
        return seen

    def before(self, task: PassTask) -> Any:
        """What is seen right before a run, where the run itself does not look; None where it does, or it can't be
        seen."""
        self._rests.pop(task.key, None)
        if task.what.observes or not task.what.rests:
            return None
        glance = task.what.loaded.glance(task.queue, task.target)
        if glance is None:
            return None
        with contextlib.suppress(EmqError):
            return glance.parse(self.server.run(load(glance.script), list(glance.keys), readonly=True))
        return None

    def ended(self, task: PassTask, before: Any, outcome: PassOutcome) -> None:
        """A run is through. `before`: what `before` saw."""
        rest = task.what.loaded.rest(outcome.before or before, outcome.report, task.policy)
        if rest is not None:
            self._rests[task.key] = rest, clock.steady()
        elif task.what.observes:
            self._idle_queues.pop(task.queue, None)

    def found_idle(self, queue: str, state: QueueState) -> None:
        """The queue stands still: none of the passes that observe it has anything to do."""
        self._idle_queues[queue] = state

    def found_unheard(self, tasks: Iterable[PassTask], stores: Stores) -> None:
        """Those of which our own stores never heard need a glance, and no first run."""
        of_pass: dict[str, list[PassTask]] = {}
        for task in tasks:
            if task.stores:
                of_pass.setdefault(task.what.name, []).append(task)
        for ours in of_pass.values():
            wanted = {(task.queue, task.target): task.policy for task in ours}
            with contextlib.suppress(EmqError):  # their passes meet the same fault, and say it
                found = ours[0].what.loaded.unheard(stores, wanted)
                since = clock.steady()
                for task in ours:
                    if (task.queue, task.target) in found:
                        self._rests[task.key] = found[task.queue, task.target], since

    def forget(self, queues: Mapping[str, object] | Sequence[str] | None = None) -> None:
        """What was remembered of these queues (None: of all) proves nothing any more."""
        names = None if queues is None else set(queues)
        self._rests = {} if names is None else {k: r for k, r in self._rests.items() if k[0] not in names}
        self._idle_queues = {} if names is None else {q: s for q, s in self._idle_queues.items() if q not in names}

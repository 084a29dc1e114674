"""A run of a playbook, from its plays' queues to its recap. Says what happens in events; prints nothing."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from emq_ops.ledger import runs
from emq_ops.playbook import events
from emq_ops.playbook.asks import Asks, Confirmation
from emq_ops.playbook.batches import split
from emq_ops.playbook.context import Ops, Stopped
from emq_ops.playbook.execute import Place, TaskExecutor
from emq_ops.playbook.model import Play, Playbook, Task, Vars
from emq_ops.playbook.outcome import SKIPPED, RecapLine, TaskOutcome, as_changed, skipped
from emq_ops.playbook.removals import Removals
from emq_ops.playbook.scope import Renderer
from emq_ops.playbook.secrets import Secrets
from emq_ops.playbook.select import TaskSelection
from emq_ops.playbook.store.recorder import Recorder
from emq_ops.playbook.store.records import WHOLE, PlaybookRun, StepRecord
from emq_ops.playbook.walk import QueueWalk
from emq_ops.protocol.errors import BadInputError, EmqError, UnreachableError

FORKS = 8
"""Queues that are worked on at once."""
FLUSH = 250
"""Queues that are looked at in one flush."""
DONE, FAILED, BAD_INPUT, INTERRUPTED, DECLINED, LOST = "done", "failed", "bad_input", "interrupted", "declined", "lost"


@dataclass
class Ended:
    """How a run ended: `status` one of this module's words, `reason` in one line where it is not ``done``."""

    run: str
    status: str
    tallies: dict[str, RecapLine]
    reason: str = ""
    fault: EmqError | None = None
    not_begun: tuple[str, ...] = ()
    """Queues of the run's plays on which nothing was begun."""


class _Declined(Exception):
    """The operator's answer was no."""


@dataclass
class Runner:
    """Runs `playbook`. `queues`: those of each play, resolved; `record`: the run as the ledger knows it."""

    ops: Ops
    playbook: Playbook
    renderer: Renderer

    extra: Vars
    selection: TaskSelection
    queues: dict[int, list[str]]
    record: PlaybookRun
    check: bool = False
    secrets: Secrets = field(default_factory=lambda: Secrets({}))
    emit: events.Emit = events.nowhere
    asks: Asks = field(default_factory=Asks)
    stopping: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._recorder = Recorder(self.ops.ledger, self.record, self.secrets)
        self._facts: dict[str, dict[str, Any]] = {}
        self._tallies: dict[str, RecapLine] = {}
        self._stepping = self.asks.step is not None
        self._fault = ""
        self._executor = TaskExecutor(
            *(self.ops, self.renderer, self.extra, self.record, self._recorder, self.check, self.stopping),
            say=self._progress,
            removals=Removals(self.record.removed()),
        )

    def run(self) -> Ended:
        """Runs to the end, or as far as it goes. Raises TakenOverError and the state database's errors."""
        resumed = self.record.claim > 1
        self.emit(events.RunStarted(self.record.run, self.playbook.shown, self.check, resumed))
        try:
            self._plays()
            bad = bool(self._fault)
            failed = any(tally.failed for tally in self._tallies.values())
            ended = self._ended(BAD_INPUT if bad else FAILED if failed else DONE, self._fault)
        except (Stopped, KeyboardInterrupt):
            ended = self._ended(INTERRUPTED, "interrupted")
        except _Declined:
            ended = self._ended(DECLINED, "not confirmed")
        except BadInputError as fault:  # nobody is there to be asked
            self._ended(INTERRUPTED, str(fault))
            raise
        except UnreachableError as fault:
            ended = self._ended(LOST, str(fault), fault)
        self.emit(events.RunEnded(ended.run, ended.status, ended.tallies, ended.reason, ended.not_begun))
        return ended

    def _ended(self, status: str, reason: str, fault: EmqError | None = None) -> Ended:
        word = {DONE: runs.DONE, FAILED: runs.FAILED, BAD_INPUT: runs.FAILED}.get(status, runs.INTERRUPTED)
        counts: dict[str, int] = {}
        for tally in self._tallies.values():
            for name, number in tally.as_row().items():
                counts[name] = counts.get(name, 0) + number
        with contextlib.suppress(*([EmqError] if status == LOST else [])):
            self._recorder.finish(word, counts, reason or None)
        wanted = {queue for names in self.queues.values() for queue in names}
        return Ended(
            self.record.run, status, self._tallies, reason, fault, tuple(sorted(wanted - self._tallies.keys()))
        )

    def _progress(self, task: Task, queue: str, text: str) -> None:
        self.emit(events.Progress(task, queue, self.secrets.shown(text)))

    def _plays(self) -> None:
        out: set[str] = set()  # queues that fell out of an earlier play
        with ThreadPoolExecutor(FORKS, thread_name_prefix="play") as pool:
            try:
                for play in self.playbook.plays:
                    names = [name for name in self.queues[play.index] if name not in out]
                    if not names:
                        continue
                    self.emit(events.PlayStarted(play, names))
                    failed, ended = self._play(play, names, pool)
                    out |= failed
                    if ended:
                        return
            except KeyboardInterrupt:
                self.stopping.set()  # or the pool would wait for what its threads still have to do
                raise

    def _play(self, play: Play, names: list[str], pool: ThreadPoolExecutor) -> tuple[set[str], bool]:
        """Runs one play; returns the queues that failed, and whether the run ends with it."""
        failed: set[str] = set()
        batches = list(split(names, play.serial))
        for number, batch in enumerate(batches, 1):
            if len(batches) > 1:
                self.emit(events.BatchStarted(number, len(batches), batch))
            reason = self._batch(play, batch, pool, failed)
            if reason:
                self.emit(events.PlayStopped(play, reason))
                return failed, True
        return failed, False

    def _batch(self, play: Play, batch: list[str], pool: ThreadPoolExecutor, failed: set[str]) -> str:
        walks = [
            QueueWalk(
                q, play, self.selection.takes, self._tallies.setdefault(q, RecapLine()), self._facts.setdefault(q, {})
            )
            for q in batch
        ]
        handlers = {handler.key for handler in play.handlers}
        stop = ""
        while True:
            waiting = [walk for walk in walks if walk.task is not None]
            if not waiting:
                break
            task = min((walk.task for walk in waiting if walk.task is not None), key=lambda t: t.order)
            group = [walk for walk in waiting if walk.task is task]
            self.emit(events.TaskStarted(play, task, [walk.queue for walk in group], task.key in handlers))
            self._task(play, task, group, pool)
            fell = {walk.queue for walk in walks if walk.failed or walk.falling}
            if not stop and play.max_fail is not None and 100 * len(fell) / len(batch) > play.max_fail:
                stop = f"{len(fell)} of {len(batch)} queues failed, more than {play.max_fail:g} %"
                for walk in walks:
                    walk.stop()
        here = {walk.queue for walk in walks if walk.failed}
        failed |= here
        return stop or ("every queue failed" if here == set(batch) else "")

    def _task(self, play: Play, task: Task, group: list[QueueWalk], pool: ThreadPoolExecutor) -> None:
        """Runs one task on the queues that stand at it, and moves them on."""
        fresh = []
        for walk in group:
            known = self.record.steps.get((task.key, walk.queue, WHOLE))
            if known is not None and known.outcome is not None:
                self._feed(play, task, walk, known.outcome, replayed=True)
            else:
                fresh.append(walk)
        if not fresh:
            return
        if self.stopping.is_set():
            raise Stopped
        outcomes = self._outcomes(play, task, fresh, pool)
        for walk, outcome in zip(fresh, outcomes, strict=True):
            if not isinstance(outcome, BaseException):
                self._feed(play, task, walk, outcome, replayed=False)
        self._recorder.soon()
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    def _outcomes(
        self, play: Play, task: Task, walks: list[QueueWalk], pool: ThreadPoolExecutor
    ) -> list[TaskOutcome | BaseException]:
        """What becomes of the task on each queue; an exception where it ends the run."""
        names = [walk.queue for walk in walks]
        if self._stepping and self.asks.step is not None:
            self._recorder.now()  # an operator may take their time
            answer = self.asks.step(task, names)
            self._stepping = answer is not None
            if answer is False:
                passed_over: list[TaskOutcome | BaseException] = [skipped("skipped by --step") for _ in walks]
                self._keep(task, names, passed_over)
                return passed_over
        approved: dict[str, TaskOutcome] = {}
        if task.module.destructive and not self.check and self.asks.confirm is not None:
            for queue, outcome in zip(names, self._each(play, task, walks, pool, predict=True), strict=True):
                if isinstance(outcome, BaseException):
                    raise outcome
                approved[queue] = outcome
            prediction = Confirmation(task, approved)
            if prediction.changes:
                self._recorder.now()
                if not self.asks.confirm(prediction):
                    raise _Declined
        return self._each(play, task, walks, pool, approved=approved)

    def _each(
        self,
        play: Play,
        task: Task,
        walks: list[QueueWalk],
        pool: ThreadPoolExecutor,
        *,
        predict: bool = False,
        approved: dict[str, TaskOutcome] | None = None,
    ) -> list[TaskOutcome | BaseException]:
        fetched = self._fetch(task, walks) if not predict and not approved else {}

        def one(walk: QueueWalk) -> TaskOutcome | BaseException:
            seen = (approved or {}).get(walk.queue)
            plans = seen.plans if seen is not None and not seen.failed else None
            place = Place(play, walk.queue, walk.facts, self._magic(play, walk.queue))
            try:
                outcome = self._executor.run(
                    task, place, predict=predict, approved=plans, fetched=fetched.get(walk.queue)
                )
                if not predict:
                    before = (task.key, walk.queue) in self.record.changed
                    if before and not outcome.changed and outcome.status != SKIPPED:
                        outcome = as_changed(outcome, "changed before the resume")
                    self._keep(task, [walk.queue], [outcome])
                    if task.module.acts and outcome.status != SKIPPED:
                        self._recorder.now()
                return outcome
            except BaseException as fault:  # noqa: BLE001  # given back, so that the other queues' outcomes are kept
                return fault

        if len(walks) == 1 or task.module.offline or fetched:
            return [one(walk) for walk in walks]
        futures: list[Future[TaskOutcome | BaseException]] = [pool.submit(one, walk) for walk in walks]
        return [future.result() for future in futures]

    def _fetch(self, task: Task, walks: list[QueueWalk]) -> dict[str, Any]:
        """What the module wants to see of many queues, in flushes of some; empty where it asks one by one."""
        if len(walks) == 1 or task.loop is not None or task.until is not None:
            return {}
        out: dict[str, Any] = {}
        for first in range(0, len(walks), FLUSH):
            some = walks[first : first + FLUSH]
            found = task.module.fetch([self._executor.context(task, walk.queue, predict=self.check) for walk in some])
            if found is None:
                return {}
            out |= {walk.queue: seen for walk, seen in zip(some, found, strict=True)}
        return out

    def _keep(self, task: Task, queues: Sequence[str], outcomes: Sequence[TaskOutcome | BaseException]) -> None:
        for queue, outcome in zip(queues, outcomes, strict=True):
            if isinstance(outcome, TaskOutcome):
                self._recorder.later(StepRecord(task.key, queue, WHOLE, outcome.attempts, None, outcome))

    def _feed(self, play: Play, task: Task, walk: QueueWalk, outcome: TaskOutcome, *, replayed: bool) -> None:
        if outcome.bad_input and not self._fault:
            self._fault = self.secrets.shown(outcome.message)
        walk.feed(outcome)
        self.emit(events.TaskEnded(play, task, walk.queue, self.secrets.shown(outcome), replayed))

    def _magic(self, play: Play, queue: str) -> dict[str, Any]:
        names = self.queues[play.index]
        return {"queue": queue, "play_queues": names, "check_mode": self.check, "run_id": self.record.run}

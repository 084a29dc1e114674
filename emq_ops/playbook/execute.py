"""One task on one queue: conditions, loop, options, the module, retries. Prediction and execution are one path."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from emq_ops.playbook import shapes
from emq_ops.playbook.context import Ops, Stopped, TaskContext
from emq_ops.playbook.decisions import SAME, Decision, Result
from emq_ops.playbook.errors import PlaybookError, TaskFailure, wrong
from emq_ops.playbook.foretold import Foretold
from emq_ops.playbook.model import Play, Task, Vars
from emq_ops.playbook.outcome import TaskOutcome, after_tries, done, failed, partly, planned, skipped, together
from emq_ops.playbook.removals import Removals
from emq_ops.playbook.scope import Renderer, Scope
from emq_ops.playbook.store.recorder import Recorder
from emq_ops.playbook.store.records import PlaybookRun, StepRecord, TryKey
from emq_ops.protocol.errors import BadInputError, EmqError, OutcomeUnknownError, UnreachableError
from emq_ops.protocol.queue import Queue
from emq_ops.syntax.errors import kind_of

_LOST_REPLIES = 3


@dataclass(frozen=True)
class Place:
    """Where a task runs: the play, the queue, its facts so far, and the language's own variables."""

    play: Play
    queue: str
    facts: Mapping[str, Any]
    magic: Mapping[str, Any]


@dataclass(frozen=True)
class _Asked:
    """How a task is to run: see `TaskExecutor.run`."""

    predict: bool
    approved: list[Decision] | None
    fetched: Any = None


@dataclass(frozen=True)
class TaskExecutor:
    """Runs tasks of one run."""

    ops: Ops
    renderer: Renderer
    extra: Vars
    record: PlaybookRun
    recorder: Recorder
    check: bool
    stopping: threading.Event
    say: Callable[[Task, str, str], None]
    removals: Removals = field(default_factory=lambda: Removals({}))
    queues: dict[str, Queue] = field(default_factory=dict)
    """Those that were worked on, so that a name is checked once a run."""
    foretold: dict[str, Foretold] = field(default_factory=lambda: defaultdict(Foretold))
    """Of a check run: what its tasks would have done so far, by queue."""

    def context(self, task: Task, queue: str, *, predict: bool, step: str = "", fetched: Any = None) -> TaskContext:
        """What the task's module gets to work with on one queue."""
        say = partial(self.say, task, queue)
        there = self.queues.get(queue)
        if there is None:
            there = self.queues[queue] = Queue(self.ops.server, queue)
        beat, settled = self.recorder.beat, self.foretold[queue].settings if self.check else {}
        return TaskContext(self.ops, there, self.record.run, step, predict, say, beat, self.stopping, fetched, settled)

    def run(
        self,
        task: Task,
        place: Place,
        *,
        predict: bool = False,
        approved: list[Decision] | None = None,
        fetched: Any = None,
    ) -> TaskOutcome:
        """The outcome of `task`. `predict`: only say what would be; `approved`: what a prediction said, to be done as
        it was said; `fetched`: see `Module.fetch`. Raises Stopped, UnreachableError (the server is lost), and what the
        state database raises."""
        asked = _Asked(predict or self.check, approved, fetched)
        try:
            return self._item(task, place, {}, 0, asked) if task.loop is None else self._loop(task, place, asked)
        except PlaybookError as fault:
            return failed(str(fault), bad_input=True)

    def _scope(self, task: Task, place: Place, names: Mapping[str, Any]) -> Scope:
        ready = (place.magic, names, place.facts)
        return Scope(self.extra, ready, (*reversed(task.layers), place.play.vars))

    def _skips(self, task: Task, scope: Scope) -> TaskOutcome | None:
        for condition in task.when:
            if not self.renderer.condition(condition, scope, "when"):
                return skipped(f"when: {condition.source}")
        return None

    def _loop(self, task: Task, place: Place, asked: _Asked) -> TaskOutcome:
        scope = self._scope(task, place, {})
        try:
            items = loop_items(task, scope, self.renderer)
        except PlaybookError:
            # The list can't be made; fine where the task would not run anyway.
            passed_over = self._skips(task, scope)
            if passed_over is None:
                raise
            return passed_over
        outcomes: list[TaskOutcome] = []
        for number, item in enumerate(items):
            names = {task.loop_var: item} | ({task.index_var: number} if task.index_var else {})
            known = self.record.steps.get((task.key, place.queue, number))
            if known is not None and known.outcome is not None and not asked.predict:
                outcomes.append(known.outcome)
                continue
            given = asked.approved[number : number + 1] if asked.approved else None
            outcome = self._item(task, place, names, number, _Asked(asked.predict, given))
            outcome.result[task.loop_var] = item
            if not asked.predict:
                self.recorder.later(StepRecord(task.key, place.queue, number, outcome.attempts, None, outcome))
            outcomes.append(outcome)
            if outcome.bad_input:
                break  # a mistake, which the other items would share
        return together(outcomes)

    def _item(self, task: Task, place: Place, names: Mapping[str, Any], number: int, asked: _Asked) -> TaskOutcome:
        if self.stopping.is_set():
            raise Stopped
        tries: list[TaskOutcome] = []
        try:
            scope = self._scope(task, place, names)
            passed_over = self._skips(task, scope)
            if passed_over is not None:
                return replace(passed_over, plans=[Decision()])
            last = self._try(task, place, scope, number, asked, tries)
        except PlaybookError as fault:  # what was done before the mistake showed is done all the same
            last = failed(str(fault), tries.pop() if tries else None, bad_input=True)
        return after_tries(last, tries, task.module.adds)

    def _try(
        self, task: Task, place: Place, scope: Scope, number: int, asked: _Asked, earlier: list[TaskOutcome]
    ) -> TaskOutcome:
        """The outcome of the last try. `earlier`: takes those of the tries before it, of earlier lives too."""
        predict = asked.predict
        tries = self._number(task.retries, scope, 3, "retries") if task.until else 0
        begun = None if predict else self.record.steps.get((task.key, place.queue, number))
        attempt = begun.attempt if begun else 1
        life = self.record.lives.get((task.key, place.queue), 1)
        tried = TryKey(task.key, place.queue, number, life)
        earlier += [] if predict else self.record.tries_before(tried, attempt)
        plan = begun.plan if begun else asked.approved[0] if asked.approved else None
        while True:
            step = f"{task.key}#{number}#{attempt}" + (f"~{life}" if life > 1 else "")
            ctx = self.context(task, place.queue, predict=predict, step=step, fetched=asked.fetched)
            options = task_options(task, scope, self.renderer)
            outcome = self._once(task, ctx, options, plan, attempt, number, resumed=begun is not None)
            if task.until is None:
                return outcome
            earlier.append(outcome)  # until it is known to be the last: a condition may be wrong
            reached = (predict and outcome.failed) or self._reached(task, scope, outcome)
            if reached or predict or attempt > tries:
                if predict:
                    outcome.unknown = outcome.unknown or not reached
                elif not reached and not outcome.failed:
                    why = self.renderer.explained(task.until, self._seen(task, scope, outcome))
                    outcome = failed(f"after {attempt} tries it does not hold that {why}", outcome)
                earlier.pop()
                return outcome
            if outcome.changed:
                self.recorder.later(tried.step(attempt, outcome))
            begun, plan = None, None
            attempt += 1
            delay = self._number(task.delay, scope, 5000, "delay")
            ctx.say(f"try {attempt} of {tries + 1} in {delay / 1000:g} s")
            ctx.sleep(delay / 1000)

    def _reached(self, task: Task, scope: Scope, outcome: TaskOutcome) -> bool:
        assert task.until is not None
        if outcome.bad_input:
            return True
        return self.renderer.condition(task.until, self._seen(task, scope, outcome), "until") and not outcome.failed

    @staticmethod
    def _seen(task: Task, scope: Scope, outcome: TaskOutcome) -> Scope:
        """What ``until`` sees: the outcome under its name, too."""
        return Scope(scope.extra, ({str(task.register): outcome.result}, *scope.ready), scope.written)

    def _number(self, node: Any, scope: Scope, default: int, word: str) -> int:
        if node is None:
            return default
        value = self.renderer.value(node, scope)
        return shapes.duration(value, node.pos, word) if word == "delay" else shapes.retries(value, node.pos)

    def _once(
        self,
        task: Task,
        ctx: TaskContext,
        options: dict[str, Any],
        plan: Decision | None,
        attempt: int,
        number: int,
        *,
        resumed: bool,
    ) -> TaskOutcome:
        """Decides (unless `plan` says already what), writes that down, acts."""
        module = task.module
        try:
            if plan is None:
                plan = module.inspect(ctx, options)
            self._guard(task, ctx, plan)
        except UnreachableError:
            raise
        except BadInputError as fault:
            return failed(str(fault if isinstance(fault, PlaybookError) else _at(task, fault)), bad_input=True)
        except EmqError as fault:
            return failed(str(fault))
        if ctx.check or (plan.verdict == SAME and not plan.duty and not resumed):
            outcome = planned(plan)
            if self.check:
                foretold = self.foretold[ctx.queue.name]
                foretold.doubt(module, outcome)
                foretold.note(module, task.name, plan, outcome)
                self.removals.begun(ctx.queue.name, plan)
            return outcome
        if module.acts and not resumed and plan.verdict != SAME:
            self.recorder.now(StepRecord(task.key, ctx.queue.name, number, attempt, plan, None))
        self.removals.begun(ctx.queue.name, plan)
        try:
            result = self._act(task, ctx, options, plan, resumed)
        except UnreachableError:
            raise
        except EmqError as fault:
            if not ctx.part:
                return replace(failed(str(fault)), attempts=attempt)
            result = partly(ctx.part)
            self.removals.ended(ctx.queue.name, plan, result)
            return failed(str(fault), done(result, plan, attempt))
        self.removals.ended(ctx.queue.name, plan, result)
        return done(result, plan, attempt)

    def _guard(self, task: Task, ctx: TaskContext, plan: Decision) -> None:
        """What the config forbids. Raises TaskFailure."""
        if not task.module.destructive or plan.verdict == SAME:
            return
        if ctx.policy.protect:
            raise TaskFailure(
                f"queue '{ctx.queue.name}' is protected; {task.module.name} is refused",
                fix="`protect: true` in the config",
            )
        self.removals.check(task, ctx.queue.name, plan, ctx.policy.max_removals)

    def _act(self, task: Task, ctx: TaskContext, options: dict[str, Any], plan: Decision, resumed: bool) -> Result:
        for _ in range(_LOST_REPLIES - 1):
            try:
                return task.module.act(ctx, options, plan, resumed)
            except OutcomeUnknownError:
                resumed = True  # what was sent may have happened: look, as a resumed run would
        try:
            return task.module.act(ctx, options, plan, resumed)
        except OutcomeUnknownError as fault:
            raise UnreachableError(fault.what, where=fault.where, fix=fault.fix) from fault


def loop_items(task: Task, scope: Scope, renderer: Renderer) -> list[Any]:
    """The items of a task's loop. Raises PlaybookError where they can't be made or are no list."""
    assert task.loop is not None
    items = renderer.value(task.loop, scope)
    if not isinstance(items, list):
        wrong(
            task.loop.pos, f"'loop' expects a list, got {kind_of(items)}", "a loop over one value: put it in brackets"
        )
    return items


def task_options(task: Task, scope: Scope, renderer: Renderer) -> dict[str, Any]:
    """The task's options: templates evaluated, each of its type, defaults filled in. Raises PlaybookError."""
    if task.module.free:
        return dict(renderer.value(task.args, scope))
    out = {option.name: option.default for option in task.module.options}
    for name, node in task.args.value.items():
        option = task.module.option(name, node.pos)
        if option.template:
            out[name] = option.take(renderer.value(node, scope), node.pos)
        else:
            out[name] = renderer.conditions(task.conditions[name], scope, name)
    return out


def _at(task: Task, fault: BadInputError) -> PlaybookError:
    return PlaybookError(fault.what, where=str(task.pos), fix=fault.fix)

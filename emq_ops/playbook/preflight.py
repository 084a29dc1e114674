"""Before anything is done: every name that a task reads can be there, and what can be evaluated already is.

What rests on registered results is left to the run. Everything else is evaluated now, so that a wrong type, an empty
filter or a loop over a text is found with nothing done.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from emq_ops.playbook import shapes
from emq_ops.playbook.errors import PlaybookError, wrong
from emq_ops.playbook.execute import loop_items
from emq_ops.playbook.model import Play, Playbook, Task, Vars
from emq_ops.playbook.scope import Renderer, Scope
from emq_ops.playbook.source import YamlNode
from emq_ops.playbook.words import MAGIC
from emq_ops.policy.words import nearest
from emq_ops.syntax.errors import Position
from emq_ops.syntax.expressions import Condition

MAX_LOOP = 200
"""Items of a loop that are looked at beforehand."""


class Later(Exception):
    """A value rests on what is registered or set while the run goes on."""


@dataclass(frozen=True)
class _Early(Scope):
    """A scope that knows which names are set later, and notes whether the queue was asked for."""

    later: frozenset[str]
    used: set[str]

    def find(self, name: str) -> tuple[bool, Any]:
        if name in self.later and name not in self.extra:
            raise Later
        self.used.add(name)
        return Scope.find(self, name)


def facts_of(task: Task) -> Iterator[str]:
    """The names that a task sets while it runs."""
    if task.register is not None:
        yield task.register
    if task.module.free:
        yield from task.args.value


class Preflight:
    """Looks at every task that a run takes. `queues`: those of each play, by its index."""

    def __init__(
        self,
        playbook: Playbook,
        renderer: Renderer,
        extra: Vars,
        takes: Callable[[Task], bool],
        queues: Mapping[int, Sequence[str]],
        magic: Mapping[str, Any],
    ) -> None:
        self._tasks = [(play, task) for play, task in playbook.tasks() if takes(task)]
        self._renderer, self._extra, self._queues, self._magic = renderer, extra, queues, magic
        self._later = frozenset(name for _, task in self._tasks for name in facts_of(task))

    def check(self) -> None:
        """Raises PlaybookError for the first mistake, in reading order."""
        for play, task in self._tasks:
            self._names(play, task)
        for play, task in self._tasks:
            names = self._queues.get(play.index, ())
            # Only a task that reads the queue's name can differ from queue to queue.
            if names and "queue" in self._evaluate(play, task, names[0]):
                for queue in names[1:]:
                    self._evaluate(play, task, queue)

    # -- names ---------------------------------------------------------------------------------------------------------

    def _names(self, play: Play, task: Task) -> None:
        written = (*reversed(task.layers), play.vars)
        earlier = {n for _, other in self._tasks if other.order < task.order for n in facts_of(other)}
        known = {*self._extra, *MAGIC, *earlier, *(name for layer in written for name in layer)}
        own = {name for name in (task.loop_var, task.index_var) if name and task.loop is not None}
        guarded = {n for c in task.when if c.compiled for n in c.compiled.guarded}
        checker = _Names(self._renderer, written, known | own | guarded, self._where_later())
        for condition in (*task.when, *itertools.chain(*task.conditions.values())):
            checker.condition(condition, set())
        for node in (task.loop, task.retries, task.delay):
            if node is not None:
                checker.node(node, ())
        for name, node in task.args.value.items():
            if name not in task.conditions:
                checker.node(node, ())
        if task.until is not None:
            checker.condition(task.until, {str(task.register)})

    def _where_later(self) -> dict[str, Position]:
        return {name: task.pos for _, task in reversed(self._tasks) for name in facts_of(task)}

    # -- values --------------------------------------------------------------------------------------------------------

    def _evaluate(self, play: Play, task: Task, queue: str) -> set[str]:
        """Evaluates what can be; returns the names that were read."""
        used: set[str] = set()

        def scope(names: Mapping[str, Any]) -> _Early:
            magic = {**self._magic, "queue": queue, "play_queues": list(self._queues[play.index])}
            later = self._later | {"failed_task", "failed_result", "run_id"}
            return _Early(self._extra, (names, magic), (*reversed(task.layers), play.vars), later - set(names), used)

        if task.loop is None:
            self._item(task, scope({}))
            return used
        try:
            if self._holds(task, scope({}), lenient=True) is False:
                return used
            items = loop_items(task, scope({}), self._renderer)
        except Later:
            return used
        for number, item in enumerate(items[:MAX_LOOP]):
            names = {task.loop_var: item} | ({task.index_var: number} if task.index_var else {})
            self._item(task, scope(names))
        return used

    def _holds(self, task: Task, scope: _Early, *, lenient: bool) -> bool | None:
        """Whether the task would run; None where that is not known yet."""
        sure = True
        for condition in task.when:
            try:
                if not self._renderer.condition(condition, scope, "when"):
                    return False
            except Later:
                sure = False
            except PlaybookError:
                # A loop's own item is not there yet; or an earlier condition, not known yet, guards this one.
                if not lenient and sure:
                    raise
                sure = False
        return True if sure else None

    def _item(self, task: Task, scope: _Early) -> None:
        if self._holds(task, scope, lenient=False) is not True:
            return
        with suppress(Later):
            if task.retries is not None:
                shapes.retries(self._renderer.value(task.retries, scope), task.retries.pos)
        with suppress(Later):
            if task.delay is not None:
                shapes.duration(self._renderer.value(task.delay, scope), task.delay.pos, "delay")
        for condition in itertools.chain(*task.conditions.values()):
            with suppress(Later):
                self._renderer.condition(condition, scope, task.module.name)
        for name, node in task.args.value.items():
            if name not in task.conditions:
                with suppress(Later):
                    value = self._renderer.value(node, scope)
                    if not task.module.free:
                        task.module.option(name, node.pos).take(value, node.pos)


@dataclass
class _Names:
    """Looks whether the names that templates read can be there."""

    renderer: Renderer
    written: Sequence[Vars]
    known: set[str]
    later: Mapping[str, Position]

    def condition(self, condition: Condition, more: set[str]) -> None:
        if condition.compiled is not None:
            self._check(condition.compiled.names - condition.compiled.guarded - more, condition.mark, ())

    def node(self, node: YamlNode, chain: tuple[str, ...]) -> None:
        if isinstance(node.value, dict | list):
            for child in node.value.values() if isinstance(node.value, dict) else node.value:
                self.node(child, chain)
        elif isinstance(node.value, str) and "{" in node.value:
            compiled = self.renderer.compiler.template(node.value)
            self._check(compiled.names - compiled.guarded, node.pos, chain)

    def _check(self, names: frozenset[str] | set[str], pos: Position, chain: tuple[str, ...]) -> None:
        for name in sorted(names):
            if name in chain:
                wrong(pos, f"variable '{name}' is made from itself", " -> ".join((*chain, name)))
            if name not in self.known:
                if name in self.later:
                    wrong(pos, f"variable '{name}' is set only later, at {self.later[name]}", "move that task up")
                near = nearest(name, self.known)
                hint = f"did you mean '{near}'?" if near else f"set it in 'vars', or give it with -e {name}=VALUE"
                wrong(pos, f"variable '{name}' is undefined", hint)
            for layer in self.written:
                if name in layer:
                    self.node(layer[name], (*chain, name))
                    break

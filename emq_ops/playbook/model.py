"""A playbook as it was read: plays, blocks, tasks. Values only; texts are still templates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from emq_ops.playbook.registry import Module
from emq_ops.playbook.source import YamlNode
from emq_ops.syntax.errors import Position
from emq_ops.syntax.expressions import Condition

Vars = dict[str, YamlNode]


@dataclass(frozen=True)
class Task:
    """One task. `key` names it within its playbook, `order` is its place in reading order. `when`, `tags` and `layers`
    (vars, outermost first) hold what its blocks and includes give it, too."""

    key: str
    order: int
    name: str
    pos: Position
    module: Module
    args: YamlNode
    when: tuple[Condition, ...] = ()
    loop: YamlNode | None = None
    loop_var: str = "item"
    index_var: str | None = None
    register: str | None = None
    until: Condition | None = None
    retries: YamlNode | None = None
    delay: YamlNode | None = None
    tags: frozenset[str] = frozenset()
    notify: tuple[str, ...] = ()
    layers: tuple[Vars, ...] = ()
    conditions: dict[str, tuple[Condition, ...]] = field(default_factory=dict)
    """Options that are conditions themselves (``assert: that:``)."""


@dataclass(frozen=True)
class Block:
    """Tasks together: `rescue` runs where one fails, `always` in any case."""

    key: str
    name: str
    pos: Position
    body: tuple[TaskOrBlock, ...]
    rescue: tuple[TaskOrBlock, ...] = ()
    always: tuple[TaskOrBlock, ...] = ()


TaskOrBlock = Task | Block


@dataclass(frozen=True)
class Play:
    """One play. `queues`: patterns, maybe templates; `named`: only those of them that ``--queues`` names; `serial`:
    sizes of batches, numbers or shares of the queues (0 < share < 1); `max_fail`: per cent of a batch that may fail
    before the play ends."""

    index: int
    name: str
    pos: Position
    queues: YamlNode
    tasks: tuple[TaskOrBlock, ...]
    handlers: tuple[Task, ...] = ()
    vars: Vars = field(default_factory=dict)
    tags: frozenset[str] = frozenset()
    serial: tuple[int | float, ...] = ()
    max_fail: float | None = None
    named: bool = False


@dataclass(frozen=True)
class Playbook:
    """A playbook. `shown`: how its user named it; `sha256`: of all its files."""

    shown: str
    plays: tuple[Play, ...]
    sha256: str

    def tasks(self) -> Iterator[tuple[Play, Task]]:
        """Every task, handlers too, in reading order."""
        for play in self.plays:
            for task in flat(play.tasks):
                yield play, task
            for task in play.handlers:
                yield play, task


def flat(steps: tuple[TaskOrBlock, ...]) -> Iterator[Task]:
    """The tasks of `steps` in reading order: body, rescue, always."""
    for step in steps:
        if isinstance(step, Task):
            yield step
        else:
            yield from flat(step.body)
            yield from flat(step.rescue)
            yield from flat(step.always)

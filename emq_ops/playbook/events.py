"""What a run says while it works. Renderers (`emq_ops.cli.play_view`) draw it; the engine prints nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from emq_ops.playbook.model import Play, Task
from emq_ops.playbook.outcome import RecapLine, TaskOutcome


@dataclass(frozen=True)
class PlayEvent:
    """The base."""


@dataclass(frozen=True)
class RunStarted(PlayEvent):
    """A run begins, or goes on (`resumed`)."""

    run: str
    playbook: str
    check: bool
    resumed: bool


@dataclass(frozen=True)
class PlayStarted(PlayEvent):
    """A play begins on these queues."""

    play: Play
    queues: list[str]


@dataclass(frozen=True)
class BatchStarted(PlayEvent):
    """A batch of a play with ``serial`` begins."""

    number: int
    count: int
    queues: list[str]


@dataclass(frozen=True)
class TaskStarted(PlayEvent):
    """A task begins on some queues. `handler`: it was notified."""

    play: Play
    task: Task
    queues: list[str]
    handler: bool


@dataclass(frozen=True)
class TaskEnded(PlayEvent):
    """A task ended on one queue. `replayed`: in an earlier life of this run."""

    play: Play
    task: Task
    queue: str
    outcome: TaskOutcome
    replayed: bool = False


@dataclass(frozen=True)
class Progress(PlayEvent):
    """A word of a task that takes long."""

    task: Task
    queue: str
    text: str


@dataclass(frozen=True)
class PlayStopped(PlayEvent):
    """A play ends early: too many queues failed."""

    play: Play
    reason: str


@dataclass(frozen=True)
class RunEnded(PlayEvent):
    """A run ends. `status`: done, failed, bad_input, interrupted, lost; `not_begun`: queues nothing was done on."""

    run: str
    status: str
    tallies: dict[str, RecapLine] = field(default_factory=dict)
    reason: str = ""
    not_begun: tuple[str, ...] = ()


Emit = Callable[[PlayEvent], None]


def nowhere(_event: PlayEvent) -> None:
    """For callers that do not listen."""

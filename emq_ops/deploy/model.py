"""The words of deploying: steps, drift, plans; and what was read of the live server. Values only.

A setting is named by its path below a queue: ``paused``, ``concurrency``, ``rate``, ``lanes/<GRP>/limit``,
``lanes/<GRP>/weight``, ``lanes/<GRP>/paused``, ``repeatables/<name>``. Its value is what the YAML would say; unset is
None, and an unpaused queue or lane False.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from emq_ops.deploy.document import Document

if TYPE_CHECKING:
    from emq_ops.passes.observe.claimers import FlatLook
from emq_ops.passes.lease.owner import ForeignQueueError, LeaseInfo
from emq_ops.passes.observe.pumps import Pumping

Op = Literal["create", "update", "delete", "move", "revert", "repair", "restore"]
SIGNS: dict[str, str] = {
    "create": "+",
    "update": "~",
    "delete": "-",
    **dict.fromkeys(("move", "revert", "repair", "restore"), "~"),
}


def instant(ms: int) -> str:
    """Unix ms as text, UTC, whole seconds."""
    return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a resource before and after; None: not set."""

    name: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class Write:
    """What a step does on the server: `setting` goes from `expect` (what is there now) to `value`."""

    setting: str
    expect: Any
    value: Any


@dataclass(slots=True)
class Step:
    """One change of one resource. `address` names it; `write` is None where only the record changes; `effect` what it
    will do, as far as that can be known; `loss` why data could be lost; `notes` what the operator should know; `moves`:
    the archive goes on in another place."""

    number: int
    op: Op
    address: str
    queue: str | None
    kind: str
    fields: list[Field]
    write: Write | None = None
    effect: dict[str, Any] = field(default_factory=dict)
    loss: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    moves: bool = False
    so_already: bool = False
    """A setting that nobody managed, or that somebody moved, and that is on the server as it is wanted."""


@dataclass(frozen=True, slots=True)
class Drift:
    """A live setting that is not what was applied: somebody moved it, or (`lost`) the server lost its data."""

    address: str
    queue: str
    setting: str
    applied: Any
    live: Any
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Interrupted:
    """An apply that did not end. `step`: the number of the step in hand, 0: none was begun; `left`: (queue, setting) ->
    (value before, value after) of the steps that were begun."""

    apply: int
    holder: str
    started_ms: int
    step: int
    steps: int
    left: dict[tuple[str, str], tuple[Any, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a plan must not be applied, and the way out (None: it stands in `what`)."""

    what: str
    fix: str | None = None

    def __str__(self) -> str:
        return self.what + (f" ({self.fix})" if self.fix else "")


@dataclass(frozen=True, slots=True)
class Note:
    """What an apply noted on a queue: by which state, as which revision, and a digest of the settings."""

    state: str
    revision: int
    digest: str


@dataclass(slots=True)
class Plan:
    """`refusals` (each with its way out) keep it from being applied at all; `warnings` do not. `base`: the applied
    revision that it starts from, None: none yet. `made_ms`: host's clock."""

    steps: list[Step]
    drift: list[Drift]
    warnings: list[str]
    refusals: list[Refusal]
    interrupted: Interrupted | None = None
    kind: str = "apply"
    base: int | None = None
    made_ms: int = 0
    notes: dict[str, Note | None] = field(default_factory=dict, repr=False)
    """What the last apply noted on each queue."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.steps

    @property
    def changes(self) -> bool:
        """Whether anything changes but what is on record of settings that are so already."""
        return bool(self.drift) or any(not step.so_already for step in self.steps)

    @property
    def losses(self) -> list[str]:
        """Why data could be lost, a line each."""
        return [f"{step.address}: {reason}" for step in self.steps for reason in step.loss]

    def counts(self) -> dict[str, int]:
        """How many of each sign: ``+ ~ - !``."""
        out = {"+": 0, "~": 0, "-": 0, "!": len(self.drift)}
        for step in self.steps:
            out[SIGNS[step.op]] += 1
        return out


@dataclass(frozen=True, slots=True)
class Proposal:
    """A plan, the document that it leads to and what it was made of, enough to make it again: `files`, path and SHA-256
    of each config file; `revert`, what drift is put back; `unmatched`, the globs that take no queue yet; `target`,
    the queues or globs that it is bounded to."""

    plan: Plan
    document: Document
    files: list[dict[str, str]] = field(default_factory=list)
    revert: tuple[str, ...] = ()
    unmatched: list[str] = field(default_factory=list)
    target: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeadFacts:
    """A queue's dead set, measured against a wanted policy: how many are dead, which ids it would let go, and why some
    of those would stay. `now_ms`: the server's clock then."""

    count: int
    victims: tuple[str, ...]
    now_ms: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamBacklog:
    """A stream, measured against a wanted policy: its length, how many records it would let go (`at_least`: or more),
    how many are not folded yet."""

    length: int
    trim: int
    at_least: bool = False
    fold: int = 0


@dataclass(slots=True)
class LiveQueue:
    """What was read of one queue: the settings that were asked for, why some of them can't be read, its lease and why
    it is not ours (`foreign`), what changed policies would do."""

    settings: dict[str, Any] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    note: Note | None = None
    lost: dict[str, Any] | None = None
    """The settings (path, value) that a server that lost its data was set back to; None: it did not."""
    lease: LeaseInfo | None = None
    foreign: ForeignQueueError | None = None
    dead: DeadFacts | None = None
    streams: dict[str, StreamBacklog] = field(default_factory=dict)
    rivals: dict[str, str] = field(default_factory=dict)
    now_ms: int = 0
    """The server's clock when it was read, unix ms; `repeats`: whether it has repeatables."""
    repeats: bool = False
    pumping: Pumping | None = None
    """Its repeatables, and who moved them; `pumped`: another pump was seen lately."""
    pumped: bool = False
    flat: FlatLook | None = None
    """Whether anybody was seen to claim flat jobs; None: no repeatable of the YAML makes any."""
    left: dict[str, int] = field(default_factory=dict)
    """What stands under policies that go: ``stalled`` (jobs in flight), ``dead``, ``streams/<name>`` (records)."""
    damage: list[str] = field(default_factory=list)
    """What can't be read of its sets and streams, a line each: the queue's policies are planned without it."""


@dataclass(slots=True)
class LiveServer:
    """What was read of the server."""

    queues: dict[str, LiveQueue] = field(default_factory=dict)
    interrupted: Interrupted | None = None
    unmatched: list[str] = field(default_factory=list)
    unmatched_optional: list[str] = field(default_factory=list)

    @property
    def left(self) -> dict[tuple[str, str], tuple[Any, Any]]:
        """What an apply that did not end may have left: (queue, setting) -> (before, after)."""
        return self.interrupted.left if self.interrupted else {}

    def of(self, queue: str) -> LiveQueue:
        """The facts of one queue; empty where none were read."""
        return self.queues.get(queue) or LiveQueue()

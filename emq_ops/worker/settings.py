"""What a consumer can be told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from emq_ops.protocol.errors import BadInputError, one_line
from emq_ops.protocol.keyspace import stream_name
from emq_ops.protocol.native import ExecutorName
from emq_ops.protocol.queue import not_negative, positive
from emq_ops.protocol.transitions.settle import COMPLETIONS
from emq_ops.worker.backoff import Backoff

RECOVERIES = ("reap", "stalled", "none")
SOURCES = ("flat", "lanes")


def sources_of(names: Iterable[str]) -> tuple[Literal["flat", "lanes"], ...]:
    """`names` checked: ``flat``, ``lanes``, or both, each once. Raises BadInputError."""
    found = tuple(dict.fromkeys(names))
    if not found or not set(found) <= set(SOURCES):
        odd = next((name for name in found if name not in SOURCES), "")
        raise BadInputError(f"can't claim from '{one_line(odd)}'", fix="flat, lanes, or flat,lanes")
    return found  # type: ignore[return-value]  # they are SOURCES


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """How a consumer works; all times are ms. Raises BadInputError for a value that can't be."""

    concurrency: int = 8
    """Jobs at once."""
    recovery: Literal["reap", "stalled", "none"] = "reap"
    """What this worker does about lapsed leases of whichever worker: ``reap`` (back to wait, uncounted), ``stalled``
    (the counted sweep), or ``none`` (another does)."""
    promote: bool = True
    """Whether it puts jobs that are due from the schedule into the queue; else another does."""
    max_stalled: int = 1
    """With ``stalled``: the counted stall that dead-letters."""
    cancel: bool = True
    """Listens for cancel events."""
    record: bool = True
    """Adds a record of each completed, cancelled or dead job to `stream`, in the step that settles it."""
    stream: str = COMPLETIONS
    lease: int = 30_000
    """How long a claim stands unless it is extended."""
    keep: bool = True
    """The keeper extends each lease every third of `lease`, for as long as somebody works on the job; without it just
    the handler's own checkpoints do, so that a handler that hangs is found out."""
    beat: int = 1_000
    """How often it recovers and promotes, and looks for flat jobs."""
    max_attempts: int = 3
    """An error at this attempt is the last."""
    backoff: Backoff = field(default_factory=Backoff)
    """How long a failed job waits."""
    claim: tuple[Literal["flat", "lanes"], ...] = ("flat", "lanes")
    """Where jobs are claimed from: flat jobs, and lanes in rotation, each as often as it weighs. Of both, the one that
    gave some stands back behind the other."""
    executor: ExecutorName = "script"
    """Scripts, or the EchoMQ module's own commands."""
    stop_deadline: int = 10_000
    """How long the jobs in hand have once it stops."""
    claim_version: bool = False
    """Writes the wire version where none stands."""
    node: int | None = None
    """0..1023, our part of ``EVT`` ids; random unless given."""

    def __post_init__(self) -> None:
        if self.recovery not in RECOVERIES:
            raise BadInputError(f"no recovery '{self.recovery}'", fix=", ".join(RECOVERIES))
        object.__setattr__(self, "claim", sources_of(self.claim))
        if self.node is not None and not 0 <= self.node <= 1023:
            raise BadInputError(f"node {self.node} is not within 0..1023")
        for name in ("concurrency", "max_stalled", "lease", "beat", "max_attempts"):
            positive(getattr(self, name), name)
        not_negative(self.stop_deadline, "stop_deadline")
        stream_name(self.stream)

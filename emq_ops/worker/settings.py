"""What a consumer can be told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.keyspace import stream_name
from emq_ops.protocol.native import ExecutorName
from emq_ops.protocol.queue import not_negative, positive
from emq_ops.protocol.transitions.settle import COMPLETIONS
from emq_ops.worker.backoff import Backoff

RECOVERIES = ("reap", "stalled", "none")
SERVES = ("both", "flat", "lanes")


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """How a consumer works; all times are ms. Raises BadInputError for a value that can't be."""

    concurrency: int = 8
    """Jobs at once."""
    recovery: Literal["reap", "stalled", "none"] = "reap"
    """What this worker does about lapsed leases of whichever worker: ``reap`` (back to wait, uncounted), ``stalled``
    (the counted sweep), or ``none`` (another does)."""
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
    serve: Literal["both", "flat", "lanes"] = "both"
    """Which jobs are claimed."""
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
        if self.serve not in SERVES:
            raise BadInputError(f"can't serve '{self.serve}'", fix=", ".join(SERVES))
        if self.node is not None and not 0 <= self.node <= 1023:
            raise BadInputError(f"node {self.node} is not within 0..1023")
        for name in ("concurrency", "max_stalled", "lease", "beat", "max_attempts"):
            positive(getattr(self, name), name)
        not_negative(self.stop_deadline, "stop_deadline")
        stream_name(self.stream)

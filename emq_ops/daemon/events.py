"""What the daemon says besides what its passes say."""

from __future__ import annotations

from dataclasses import dataclass, field

from emq_ops.passes.events import Event


@dataclass(frozen=True, slots=True)
class DaemonStarted(Event):
    """The daemon runs revision `revision`."""

    revision: int = 0
    tasks: int = 0
    queues: int = 0


@dataclass(frozen=True, slots=True)
class RevisionFollowed(Event):
    """Another revision is in force."""

    revision: int = 0
    tasks: int = 0


@dataclass(frozen=True, slots=True)
class RevisionRefused(Event):
    """A revision that this daemon can't take over (a variable is not set where it runs); the one before goes on."""

    revision: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class RestartNeeded(Event):
    """What the revision in force says and a running daemon does not take over: `sections`."""

    sections: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TaskMissed(Event):
    """Runs of a task were due and too late to start (`max_late`)."""

    task: str = ""
    count: int = 0


@dataclass(frozen=True, slots=True)
class TaskLate(Event):
    """A run begins late, because it was due while nobody could run it; `skipped` earlier ones are one with it."""

    task: str = ""
    late_ms: int = 0
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class CaughtUp(Event):
    """After an alert ``behind``: no run is due for long any more."""


@dataclass(frozen=True, slots=True)
class QueueMoves(Event):
    """After an alert that a queue stands still: it does no more."""


@dataclass(frozen=True, slots=True)
class DriftSeen(Event):
    """`settings` of a queue are not as they were applied: somebody moved them, or the server lost them."""

    settings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DriftEnded(Event):
    """After a drift: the queue's settings are as applied again."""


@dataclass(frozen=True, slots=True)
class TaskFailed(Event):
    """A run failed, `failures` times in a row now; the next try is after `retry_ms`. `code`: a word for the kind of
    error (`emq_ops.protocol.errors.code_of`)."""

    task: str = ""
    error: str = ""
    failures: int = 0
    retry_ms: int = 0
    code: str = ""


@dataclass(frozen=True, slots=True)
class ServerLost(Event):
    """The server of some queues does not answer, or refuses to renew our leases (no disk space, no replicas, a right
    taken away); no pass is begun there until it is back."""

    queues: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class ServerBack(Event):
    """It answers, and takes our writes again."""

    queues: int = 0


@dataclass(frozen=True, slots=True)
class StateFault(Event):
    """The state database does not do what it should; what is to be written is kept until it does."""

    error: str = ""


@dataclass(frozen=True, slots=True)
class StateBack(Event):
    """The state database answers again."""


@dataclass(frozen=True, slots=True)
class QueueRefused(Event):
    """A queue that this daemon may not lead (another state owns it), or can't make the tasks of."""

    error: str = ""


@dataclass(frozen=True, slots=True)
class EnoughLeases(Event):
    """To renew what this daemon leads takes so long that it leaves `queues` to others, until that is quicker."""

    queues: int = 0


@dataclass(frozen=True, slots=True)
class ClockStepped(Event):
    """The host's wall clock was set by `seconds`."""

    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Stopping(Event):
    """The daemon ends; `running` passes are in hand."""

    running: int = 0

"""What passes say while they work: typed events. Tables, JSON, logs, metrics and pages are renderers of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from emq_ops.ledger.alerts import Alert, add_alert
from emq_ops.ledger.ledger import Ledger

if TYPE_CHECKING:  # with it comes pyarrow, which few commands need
    from emq_archive.tally import Tally


@dataclass(frozen=True, slots=True)
class Event:
    """The base. `queue`: which; `run`: the pass, None outside one."""

    queue: str
    run: str | None = None

    @property
    def name(self) -> str:
        """The kind as a word: ``slice_swept``, ``burst_stopped`` ..."""
        return "".join("_" + c.lower() if c.isupper() else c for c in type(self).__name__).lstrip("_")

    def facts(self) -> dict[str, Any]:
        """Every field by name, the base's included."""
        names = [name for cls in reversed(type(self).__mro__) for name in getattr(cls, "__slots__", ())]
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True)
class PassStarted(Event):
    """A pass begins its work. An idle pass never says so."""

    kind: str = ""
    token: int = 0


@dataclass(frozen=True, slots=True)
class PassEnded(Event):
    """A pass ended: `status` done, failed or stopped; `counts` as in its report."""

    kind: str = ""
    status: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True, slots=True)
class SliceSwept(Event):
    """A slice of a sweep is done and in the ledger."""

    recovered: int = 0
    exempted: int = 0
    dead: int = 0
    ghosts: int = 0


@dataclass(frozen=True, slots=True)
class Died(Event):
    """A job was seen dead. `killed_by`: our pass, None where somebody else did it."""

    job: str = ""
    cause: str = ""
    attempts: int = 0
    stalls: int = 0
    killed_by: str | None = None


@dataclass(frozen=True, slots=True)
class SliceTrimmed(Event):
    """A slice of a trim is done."""

    removed: int = 0
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class StreamArchived(Event):
    """A cycle over a stream did something: records newly `read`, proven in the store (`shipped`), and removed from the
    stream (`trimmed`); `lag_ms`: the age of the oldest that it left unread; `tally`: what completions said."""

    stream: str = ""
    read: int = 0
    shipped: int = 0
    trimmed: int = 0
    lag_ms: int = 0
    tally: Tally | None = None


@dataclass(frozen=True, slots=True)
class InterruptionSeen(Event):
    """The node of a queue was away: `kind` restart, failover, outage, rewind; `in_flight` across it."""

    interruption: int = 0
    kind: str = ""
    started_ms: int | None = None
    ended_ms: int = 0
    in_flight: int = 0
    went_back: bool = False


@dataclass(frozen=True, slots=True)
class Alerted(Event):
    """Something an operator should look at: ``burst``, ``burst_stopped``, ``removals_stopped``, ``competitor``,
    ``went_back``, ``two_servers`` ..."""

    kind: str = ""
    text: str = ""
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LeaseTaken(Event):
    """This process leads the queue now."""

    token: int = 0
    took_over: str | None = None


@dataclass(frozen=True, slots=True)
class LeaseLost(Event):
    """This process leads the queue no more, without having given it up."""

    reason: str = ""


Emit = Callable[[Event], None]


def nowhere(_event: Event) -> None:
    """For callers that do not listen."""


def alert(ledger: Ledger, emit: Emit, raised: Alert) -> None:
    """Keeps an alert in the ledger and says it."""
    with ledger.write() as connection:
        add_alert(connection, raised)
    emit(Alerted(raised.queue, raised.run, kind=raised.kind, text=raised.text, details=raised.facts))

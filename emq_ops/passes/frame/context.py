"""What the frame hands a pass: the run under way, and what it works with."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from emq_ops.database.engine import Connection
from emq_ops.ledger.alerts import Alert
from emq_ops.ledger.holds import Window
from emq_ops.ledger.interruptions import Interruption
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.pending_runs import PendingRuns
from emq_ops.passes.events import Emit, Event, alert, nowhere
from emq_ops.passes.frame.budget import TimeBudget
from emq_ops.passes.frame.order import Order
from emq_ops.passes.frame.record import RunRow
from emq_ops.passes.frame.stores import NO_STORES, Stores
from emq_ops.passes.lease.holder import DAEMON
from emq_ops.passes.observe.queue_state import QueueState
from emq_ops.protocol.fence import Fence
from emq_ops.protocol.server import Server


def _no_windows() -> Sequence[Window]:
    return ()


@dataclass(slots=True)
class Services:
    """What the runs of one process share. `windows`: the config's maintenance windows that may matter now; `memory`:
    what passes remember from run to run, by pass, queue and target; `ledger`: None where the state does not exist yet
    (predictions alone go without); `unwritten`: ends of runs that wait for the ledger
    (None: a run whose end can't be written says so)."""

    server: Server
    ledger: Ledger | None
    stores: Stores = NO_STORES
    windows: Callable[[], Sequence[Window]] = _no_windows
    emit: Emit = nowhere
    memory: dict[Hashable, Any] = field(default_factory=dict)
    unwritten: PendingRuns | None = None

    @property
    def state(self) -> Ledger:
        """The state database of those that do more than predict."""
        if self.ledger is None:
            raise AssertionError("only a prediction goes without the state")
        return self.ledger


@dataclass(slots=True)
class Context:
    """One life of a run of the pass `name`.

    `server`: of this life alone; `report`: of the whole run, over all its lives; `carried`: what the pass carries from
    one life of the run to the next; `life`: 0 for the first; `state`: the queue as it was when this life began (None:
    the pass does not observe); `now_ms`: the server's clock then, unix ms; `newest`: the queue's newest interruption;
    `budget`: how much of the caller's time is left.
    """

    name: str
    order: Order
    services: Services
    server: Server
    report: Any
    record: RunRow
    fence: Fence | None = None
    life: int = 0
    carried: dict[str, Any] = field(default_factory=dict)
    state: QueueState | None = None
    now_ms: int = 0
    newest: Interruption | None = None
    budget: TimeBudget = field(default_factory=TimeBudget)

    @property
    def queue(self) -> str:
        """The queue's name."""
        return self.order.queue

    @property
    def policy(self) -> Any:
        """Of the pass's policy type."""
        return self.order.policy

    @property
    def ledger(self) -> Ledger:
        """The state database."""
        return self.services.state

    @property
    def run(self) -> str:
        """The id of this run; '' before `begin`."""
        return self.record.run

    @property
    def quiet(self) -> bool:
        """Whether a run that finds nothing to do leaves no row: the daemon counts its idle runs together."""
        return self.order.trigger == DAEMON and not self.record.run

    @property
    def seen(self) -> QueueState:
        """The queue as it was when this life began."""
        if self.state is None:
            raise AssertionError(f"the pass {self.name} does not observe")
        return self.state

    def begin(self, *, tell: bool = True) -> Fence:
        """Opens the run's row, where that was not done, and gives the lease under which scripts write: nothing is
        written before. `tell` False: an event tells it only once the run did something. Raises what the ledger
        raises."""
        if self.fence is None:
            raise AssertionError("a prediction writes nothing, and a pass on demand has no lease")
        self.open(tell=tell)
        return self.fence

    def open(self, *, tell: bool = True) -> None:
        """As `begin`, for a pass on demand."""
        self.record.open(self.ledger, 0 if self.fence is None else self.fence.token, tell=tell)
        self.report.run = self.record.run

    def end(self, connection: Connection) -> None:
        """Closes the row in the pass's own last transaction; without it the frame does, in one more."""
        self.record.finish(connection, self.report)

    def emit(self, event: Event) -> None:
        """Tells an event."""
        self.services.emit(event)

    def alert(self, kind: str, text: str, now_ms: int, facts: dict[str, Any]) -> None:
        """Keeps an alert in the ledger and tells it."""
        alert(self.ledger, self.services.emit, Alert(self.queue, kind, text, now_ms, facts, self.run))

    @property
    def memory_key(self) -> Hashable:
        """Where `Services.memory` has what this pass remembers of this queue and target."""
        return self.name, self.queue, self.order.target

"""The ledger's row of one run: opened before the first write, closed once, whatever happens; events beside it."""

from __future__ import annotations

from typing import Any

from emq_ops.database.engine import Connection
from emq_ops.ledger import runs
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.runs import PendingRuns, Run
from emq_ops.passes.events import Emit, PassEnded, PassStarted
from emq_ops.passes.frame.budget import at_the_end
from emq_ops.passes.frame.order import Order
from emq_ops.passes.lease.holder import who
from emq_ops.policy.rows import as_row
from emq_ops.protocol.errors import EmqError, OutcomeUnknownError, ReconnectedError
from emq_ops.protocol.fence import Fence


class RunRow:
    """Of a run of the pass `name`. `run`: its id, '' until it is opened; `closed`: how it ended is written."""

    def __init__(self, emit: Emit, name: str, order: Order) -> None:
        self._emit, self._name, self._order = emit, name, order
        self._row: Run | None = None
        self.run = ""
        self.closed = False
        self._token = 0
        self._told = False

    def _new(self) -> Run:
        order = self._order
        target = {"stream": order.target} if order.target else {}
        policy = {**target, **as_row(order.policy)}
        return runs.new(self._name, order.queue, holder=who(), trigger=order.trigger, token=self._token, policy=policy)

    def open(self, ledger: Ledger, fence: Fence, *, tell: bool) -> None:
        """Records that the run begins; a later life goes on with the same row, under its own lease."""
        if self._row is None:
            self._token = fence.token
            self._row = self._new()
            runs.begin(ledger, self._row)
            self.run = self._row.id
        elif fence.token != self._token:
            self._token = fence.token
            runs.renew(ledger, self.run, fence.token)
        if tell:
            self._tell_start()

    def finish(self, connection: Connection, report: Any) -> None:
        """Closes the row with what the report says, in a transaction of the caller's."""
        runs.finish(connection, self.run, _status(report), counts=report.counts())
        self.closed = True

    def close(self, ledger: Ledger, report: Any, unwritten: PendingRuns | None) -> None:
        """The run ended well. Where the ledger is away, its end waits in `unwritten`; without that the report says
        so."""
        if self._row is None:
            return
        if not self.closed:
            try:
                (unwritten or PendingRuns(ledger)).put(self._row.over(_status(report), report.counts()))
            except EmqError as fault:
                if unwritten is None:
                    report.notes.append(f"what was done could not be recorded as run {self.run}: {fault}")
            self.closed = True
        self._tell_end(_status(report), report.counts())

    def discard(self, ledger: Ledger) -> None:
        """There was nothing to do after all, and nothing was told."""
        if self.run and not self.closed and not self._told:
            runs.discard(ledger, self.run)
            self._row, self.run = None, ""

    def fail(self, ledger: Ledger, fault: EmqError, report: Any) -> None:
        """The run ended with a fault. One that did nothing for certain is counted with those before it that failed
        alike."""
        if not self.run:
            return
        text, counts = str(fault), report.counts()
        unsure = isinstance(fault, OutcomeUnknownError | ReconnectedError)

        def write() -> None:
            with ledger.write() as connection:
                runs.finish(connection, self.run, runs.FAILED, counts=counts or None, error=text)
                if not counts and not unsure:
                    runs.join_repeats(connection, self.run)

        at_the_end(write)
        self._tell_end(runs.FAILED, counts, text)

    def refuse(self, ledger: Ledger, text: str, report: Any) -> None:
        """The run was not begun, or not gone on with. Refusals that repeat are one row a queue, pass and reason."""
        if not self.run:
            refused = self._new().over(runs.REFUSED, {}, text)
            at_the_end(lambda: runs.refused(ledger, refused))
            return

        def write() -> None:
            with ledger.write() as connection:
                runs.finish(connection, self.run, runs.REFUSED, counts=report.counts() or None, error=text)

        at_the_end(write)
        self._tell_end(runs.REFUSED, report.counts(), text)

    def _tell_start(self) -> None:
        if not self._told:
            self._told = True
            self._emit(PassStarted(self._order.queue, self.run, kind=self._name, token=self._token))

    def _tell_end(self, status: str, counts: dict[str, int], error: str | None = None) -> None:
        self._tell_start()
        kind, queue = self._name, self._order.queue
        self._emit(PassEnded(queue, self.run, kind=kind, status=status, counts=counts, error=error))


def _status(report: Any) -> str:
    return runs.STOPPED if report.status == "stopped" else runs.DONE

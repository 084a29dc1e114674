"""The ledger's row of one run: opened before the first write, closed once, whatever happens; events beside it."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from emq_ops.database.engine import Connection
from emq_ops.ledger import runs
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.pending_runs import PendingRuns
from emq_ops.ledger.runs import Run
from emq_ops.passes.events import Emit, PassEnded, PassStarted
from emq_ops.passes.frame.budget import at_the_end
from emq_ops.passes.frame.order import Order
from emq_ops.passes.lease.holder import Holder, who
from emq_ops.policy.rows import as_row
from emq_ops.protocol.errors import EmqError, OutcomeUnknownError, ReconnectedError


class RunRow:
    """Of a run of the pass `name`. `run`: its id, '' until it is opened; `closed`: how it ended is written.
    `resumable`: one that ends early is interrupted, not failed, and says which process may still be at it. `unwritten`:
    where its end waits while the ledger is away."""

    def __init__(
        self, emit: Emit, name: str, order: Order, *, resumable: bool = False, unwritten: PendingRuns | None = None
    ) -> None:
        self.resumable = resumable
        self._unwritten = unwritten
        self._emit, self._name, self._order = emit, name, order
        self._row: Run | None = None
        self.run = ""
        self.closed = False
        self._token = 0
        self._told = False

    def _new(self) -> Run:
        order = self._order
        target = {"stream": order.target} if order.target else {}
        policy = {**target, **as_row(order.policy), **(_process() if self.resumable else {})}
        return runs.new(self._name, order.queue, holder=who(), trigger=order.trigger, token=self._token, policy=policy)

    def open(self, ledger: Ledger, token: int, *, tell: bool) -> None:
        """Records that the run begins, under the lease of that token (0: none); a later life goes on with the same row,
        under its own lease. A run that is resumed goes on with the row that it has."""
        if self._row is None:
            self._token = token
            if self._order.resumes:
                found = runs.get(ledger, self._order.resumes)
                self._row = replace(found, holder=who(), policy={**found.policy, **_process()})
                runs.resume(ledger, self._row)
            else:
                self._row = self._new()
                runs.begin(ledger, self._row)
            self.run = self._row.id
        elif token != self._token:
            self._token = token
            runs.renew(ledger, self.run, token)
        if tell:
            self._tell_start()

    def finish(self, connection: Connection, report: Any) -> None:
        """Closes the row with what the report says, in a transaction of the caller's."""
        runs.finish(connection, self.run, self._status(report), counts=report.counts())
        self.closed = True

    def close(self, ledger: Ledger, report: Any) -> None:
        """The run ended well. Where its end can't be written and waits nowhere, the report says so."""
        if self._row is None:
            return
        if not self.closed:
            try:
                (self._unwritten or PendingRuns(ledger)).put(self._row.over(self._status(report), report.counts()))
            except EmqError as fault:
                if self._unwritten is None:
                    report.notes.append(f"what was done could not be recorded as run {self.run}: {fault}")
            self.closed = True
        self._tell_end(self._status(report), report.counts())

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
        repeats = not (self.resumable or isinstance(fault, OutcomeUnknownError | ReconnectedError))
        self._end(ledger, runs.INTERRUPTED if self.resumable else runs.FAILED, report, str(fault), repeats=repeats)

    def refuse(self, ledger: Ledger, text: str, report: Any) -> None:
        """The run was not begun, or not gone on with. Refusals that repeat are one row a queue, pass and reason."""
        if not self.run:
            refused = self._new().over(runs.REFUSED, {}, text)
            at_the_end(lambda: runs.refused(ledger, refused))
            return
        self._end(ledger, runs.INTERRUPTED if self.resumable else runs.REFUSED, report, text)

    def cut(self, ledger: Ledger, report: Any) -> None:
        """Whoever ran it was told to stop: a run that can be resumed says so."""
        if self.run and self.resumable and not self.closed:
            self._end(ledger, runs.INTERRUPTED, report, "interrupted")

    def _end(self, ledger: Ledger, status: str, report: Any, error: str, *, repeats: bool = False) -> None:
        counts = report.counts()

        def write() -> None:
            with ledger.write() as connection:
                runs.finish(connection, self.run, status, counts=counts or None, error=error)
                if repeats and not counts:
                    runs.join_repeats(connection, self.run)

        if not at_the_end(write) and self._unwritten is not None and self._row is not None:
            self._unwritten.keep(self._row.over(status, counts, error))
        self._tell_end(status, counts, error)

    def _tell_start(self) -> None:
        if not self._told:
            self._told = True
            self._emit(PassStarted(self._order.queue, self.run, kind=self._name, token=self._token))

    def _tell_end(self, status: str, counts: dict[str, int], error: str | None = None) -> None:
        self._tell_start()
        kind, queue = self._name, self._order.queue
        self._emit(PassEnded(queue, self.run, kind=kind, status=status, counts=counts, error=error))

    def _status(self, report: Any) -> str:
        if self.resumable and report.more:
            return runs.INTERRUPTED
        return runs.STOPPED if report.status == "stopped" else runs.DONE


def _process() -> dict[str, Any]:
    """This process, so that another can tell whether it lives."""
    return {"process": asdict(Holder.me("command"))}

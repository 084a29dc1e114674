"""Bringing jobs back into the dead set, slice by slice."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from emq_ops.ledger import acts, runs
from emq_ops.ledger.erased import erased_among
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.snapshot import JobSnapshot
from emq_ops.passes.acts.lives import look_again, tell_progress
from emq_ops.passes.acts.options import RateLimiter
from emq_ops.passes.acts.report import ActReport
from emq_ops.passes.acts.slices import read_acted
from emq_ops.passes.acts.sources import Page, RestoreSource
from emq_ops.passes.frame.context import Context
from emq_ops.protocol.errors import EmqError, OutcomeUnknownError
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Arg

_TRIES = 5


class Restoration:
    """Jobs of `source` on their way back, in one life of a run. `then` is called with each that is back."""

    def __init__(self, context: Context, source: RestoreSource, then: Callable[[str], object] | None = None) -> None:
        self.context, self.source, self._then = context, source, then
        self.report: ActReport = context.report
        # What all lives of the run brought back, and with whom something is to be done yet.
        self._back: set[str] = context.carried.setdefault("back", set())
        self._owed: list[str] = context.carried.setdefault("owed", [])

    def carry_out(self) -> None:
        """Brings them back, at the policy's rate. Raises what the server and the ledger raise."""
        context, report, limiter = self.context, self.report, RateLimiter.of(self.context)
        report.left.clear()  # those of an earlier life are met again
        report.left_jobs.clear()
        self._settle()  # the last slice of an earlier life
        report.selected = report.done
        self._follow_up()
        for number, found in enumerate(self.source.pages(limiter.slice)):
            page = {job: snapshot for job, snapshot in found.items() if job not in self._back}
            limiter.wait(len(page))
            if context.budget.up:
                report.out_of_time()
                return
            report.selected += len(page)
            if number:
                look_again(context)
            report.add(why_lost(context.ledger, report.queue, page))
            self._send({job: snapshot for job, snapshot in page.items() if snapshot is not None})
            self._follow_up()
            tell_progress(context, len(context.order.options.get("jobs") or ()))

    def _send(self, wanted: Mapping[str, JobSnapshot]) -> None:
        run, keys, script = self.context.run, keys_of(self.report.queue), load("act_restore")
        codes: dict[str, str] = {}
        for _ in range(_TRIES):
            calls: list[tuple[list[str], list[Arg]]] = [
                ([keys.acted(run), keys.dead, keys.row(job)], [keys.base, job, *texts_of(snapshot)])
                for job, snapshot in wanted.items()
                if job not in codes
            ]
            if not calls:
                break
            replies = self.context.server.run_many(script, calls)
            codes |= self._settle(left=True)
            faults = [reply for reply in replies if isinstance(reply, EmqError)]
            hard = [fault for fault in faults if not isinstance(fault, OutcomeUnknownError)]
            if hard:
                raise hard[0]
        else:
            if faults and len(codes) < len(wanted):
                raise faults[0]

    def _settle(self, *, left: bool = False) -> dict[str, str]:
        """Puts what was brought back into the ledger, and lets the server forget it; returns job -> code. `left`: also
        those that were left are counted."""
        report, run, keys = self.report, self.context.run, keys_of(self.report.queue)
        codes: dict[str, str] = {}
        for job, code in read_acted(self.context.server, keys, run):
            codes.setdefault(job, code)  # sent twice, the second time it existed
        if not codes:
            return codes
        back = [job for job, code in codes.items() if code == acts.DONE and job not in self._back]
        with self.context.ledger.write() as connection:
            self.source.note_back(connection, back, run)
            counts = {"selected": max(report.selected, report.done + len(back)), acts.DONE: report.done + len(back)}
            runs.save_counts(connection, run, counts)
        self._back.update(back)
        self._owed += back
        report.add({job: code for job, code in codes.items() if job in back or (left and code != acts.DONE)})
        self.context.server.write("UNLINK", keys.acted(run))
        return codes

    def _follow_up(self) -> None:
        while self._owed and self._then is not None:
            self._then(self._owed[0])
            self._owed.pop(0)


def why_lost(ledger: Ledger, queue: str, page: Page) -> dict[str, str]:
    """Those jobs of a page that are kept nowhere: lost, or erased."""
    gone = [job for job, snapshot in page.items() if snapshot is None]
    with ledger.read() as connection:
        erased = erased_among(connection, queue, gone)
    return {job: "erased" if job in erased else "lost" for job in gone}


def texts_of(snapshot: JobSnapshot) -> list[Arg]:
    """A job as `act_restore` takes it."""
    dependencies = [] if snapshot.dependencies is None else [snapshot.dependencies]
    parts = [snapshot.row, snapshot.logs, dependencies, *snapshot.books]
    group = snapshot.get(b"group") or b""
    return [*(len(part) for part in parts), snapshot.place, group, *(text for part in parts for text in part)]

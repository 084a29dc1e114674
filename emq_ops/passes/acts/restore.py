"""Bringing jobs back into the dead set, slice by slice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from emq_ops.ledger import acts, runs
from emq_ops.ledger.erased import erased_among
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.snapshot import JobSnapshot
from emq_ops.passes.acts.lives import accounted
from emq_ops.passes.acts.options import ActOptions, RateLimiter
from emq_ops.passes.acts.report import ActReport
from emq_ops.passes.acts.slices import read_acted
from emq_ops.passes.acts.sources import Page, RestoreSource
from emq_ops.passes.events import PassStarted
from emq_ops.protocol.errors import EmqError, OutcomeUnknownError
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Arg, Server

_TRIES = 5


@dataclass(slots=True)
class Restoration:
    """Jobs of `source` on their way back; `report` is the one of their run. `then` is called with those that are back,
    a slice at a time."""

    server: Server
    ledger: Ledger
    report: ActReport
    source: RestoreSource
    options: ActOptions
    then: Callable[[Sequence[str]], None] = lambda _jobs: None

    def carry_out(self) -> ActReport:
        """Brings them back, at the rate of the options. Raises what the server and the ledger raise."""
        report, limiter = self.report, RateLimiter.of(self.options)
        self.options.emit(PassStarted(report.queue, report.run or "", kind=report.kind))
        with accounted(self.ledger, report, self.options.emit):
            earlier = self._settle()  # the last slice of an earlier life
            report.selected += report.done
            for page in self.source.pages(limiter.slice):
                report.selected += len(page)
                limiter.wait(len(page))
                report.add(why_lost(self.ledger, report.queue, page))
                codes = self._send({job: snapshot for job, snapshot in page.items() if snapshot is not None})
                self.then([job for job, code in codes.items() if code == acts.DONE])
            if earlier:
                self.then([job for job, code in earlier.items() if code == acts.DONE])
        return report

    def _send(self, wanted: Mapping[str, JobSnapshot]) -> dict[str, str]:
        run, keys, script = self.report.run or "", keys_of(self.report.queue), load("act_restore")
        codes: dict[str, str] = {}
        for _ in range(_TRIES):
            calls: list[tuple[list[str], list[Arg]]] = [
                ([keys.acted(run), keys.dead, keys.row(job)], [keys.base, job, *_texts(snapshot)])
                for job, snapshot in wanted.items()
                if job not in codes
            ]
            if not calls:
                break
            replies = self.server.run_many(script, calls)
            codes |= self._settle(left=True)
            faults = [reply for reply in replies if isinstance(reply, EmqError)]
            hard = [fault for fault in faults if not isinstance(fault, OutcomeUnknownError)]
            if hard:
                raise hard[0]
        return codes

    def _settle(self, *, left: bool = False) -> dict[str, str]:
        """Puts what was brought back into the ledger, and lets the server forget it; returns job -> code. `left`: also
        those that were left are counted (those of an earlier life are met again)."""
        report, run, keys = self.report, self.report.run or "", keys_of(self.report.queue)
        codes: dict[str, str] = {}
        for job, code in read_acted(self.server, keys, run):
            codes.setdefault(job, code)  # sent twice, the second time it existed
        if not codes:
            return codes
        back = [job for job, code in codes.items() if code == acts.DONE]
        report.add({job: code for job, code in codes.items() if left or code == acts.DONE})
        with self.ledger.write() as connection:
            self.source.note_back(connection, back, run)
            runs.save_counts(connection, run, {"selected": report.selected, acts.DONE: report.done})
        self.server.write("UNLINK", keys.acted(run))
        return codes


def why_lost(ledger: Ledger, queue: str, page: Page) -> dict[str, str]:
    """Those jobs of a page that are kept nowhere: lost, or erased."""
    gone = [job for job, snapshot in page.items() if snapshot is None]
    with ledger.read() as connection:
        erased = erased_among(connection, queue, gone)
    return {job: "erased" if job in erased else "lost" for job in gone}


def _texts(snapshot: JobSnapshot) -> list[Arg]:
    dependencies = [] if snapshot.dependencies is None else [snapshot.dependencies]
    parts = [snapshot.row, snapshot.logs, dependencies, *snapshot.books]
    return [*(len(part) for part in parts), *(text for part in parts for text in part)]

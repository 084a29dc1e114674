"""Taking a paused queue away: what its jobs' removals left, its lanes, settings and repeatables, for good."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from emq_ops.passes.frame.context import Context
from emq_ops.passes.frame.contract import Work
from emq_ops.passes.frame.order import Order, Prediction
from emq_ops.passes.report import PassReport
from emq_ops.protocol.key_names import row_of_name
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.transitions import control, jobs, reads

_BUDGET = 1000


@dataclass(slots=True)
class ObliterateReport(PassReport):
    """`jobs`: how many were in it; `lanes`, `repeatables`: how many of each went."""

    jobs: int = 0
    lanes: int = 0
    repeatables: int = 0

    def counts(self) -> dict[str, int]:
        """The numbers; without those that are 0."""
        found = {"jobs": self.jobs, "lanes": self.lanes, "repeatables": self.repeatables}
        return {name: count for name, count in found.items() if count}


class ObliterateWork(Work):
    """A whole queue goes."""

    def report(self, order: Order) -> ObliterateReport:
        """Nothing is known yet."""
        return ObliterateReport(order.queue)

    def run(self, context: Context) -> None:
        """Budget by budget. Raises StateError: it is not paused, or jobs are active and nobody forces it."""
        q = Queue(context.server, context.queue)
        if not context.life:
            self._look(q, context.report)
        context.open()
        lanes = [lane.group for lane in reads.every_lane(q)]
        while not control.obliterate(q, force=context.policy.force, budget=_BUDGET, lanes=lanes):
            if context.budget.up:
                context.report.more = True
                context.report.notes.append("the time ran out with work left; asked again, it goes on")
                return
        for job in list(_waiting_parents(q)):  # they stand in no set, and their children were in other queues
            context.report.jobs += jobs.remove(q, job)

    def predict(self, context: Context) -> Prediction:
        """What is in it."""
        report = context.report
        self._look(Queue(context.server, context.queue), report)
        report.status = "dry"
        return Prediction(report, removals=report.jobs, count=report.jobs)

    def _look(self, q: Queue, report: ObliterateReport) -> None:
        counts, lanes = reads.counts(q), reads.every_lane(q)
        report.jobs = counts.pending + counts.active + counts.schedule + counts.dead + sum(one.waiting for one in lanes)
        report.lanes = len(lanes)
        report.repeatables = int(q.server.read("ZCARD", q.keys.repeat))


def _waiting_parents(q: Queue) -> Iterator[str]:
    """Flow parents that wait for children. A look at every key of the server, by bounded scans."""
    for key in q.server.scan(q.keys.all_pattern()):
        job = row_of_name(q.keys.name_of(key)) if key.startswith(q.keys.base.encode("utf-8")) else None
        if job is None or q.server.read("TYPE", key) != b"hash":
            continue
        if q.server.read("HGET", key, "state") == b"awaiting_children":
            yield job.decode("ascii")

"""Removing the victims of a trim: archived and proven page by page where the policy says so, deleted slice by slice."""

from __future__ import annotations

import contextvars
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from emq_ops.ledger.victims import Victim
from emq_ops.passes.acts.flow_records import FlowRecords, keep_flow_records
from emq_ops.passes.acts.snapshots import facts_and_fingerprints, renew_snapshots
from emq_ops.passes.events import SliceTrimmed
from emq_ops.passes.frame.context import Context
from emq_ops.passes.lease.holder import DAEMON
from emq_ops.passes.report import NAMED, name_some
from emq_ops.passes.trim.archiver import ArchivedJob, DeadArchiver
from emq_ops.passes.trim.call import call_tail, note_stay
from emq_ops.passes.trim.report import TrimReport
from emq_ops.policy.models import DeadPolicy
from emq_ops.protocol.errors import EmqError
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Arg

ARCHIVE_PAGE = 10_000
"""Victims handed to the archive at a time."""
FLUSH = 4
"""Slices sent at once. The server does them one after the other; between flushes it serves others first."""
_Proven = Mapping[str, ArchivedJob]


class Removal:
    """One life's removing. `done`: victims whose turn came, in order; `stay`: of those, who were not removed;
    `removed`: how many were."""

    def __init__(self, context: Context, report: TrimReport, policy: DeadPolicy) -> None:
        self.context, self.report, self.policy = context, report, policy
        self.fence = context.begin()
        self.keys = keys_of(context.queue)
        self.done = 0
        self.removed = 0
        self.stay: set[str] = set()

    def remove(self, victims: Sequence[Victim]) -> None:
        """Removes them, with an archive page by page: the next page is archived while one that is proven goes."""
        context = self.context
        if not self.policy.archive:
            if context.budget.up:
                self.report.more = True
            else:
                self._delete(victims, None, keep_flow_records(context.server, context.ledger, self.keys, victims))
            return
        queue, paced = Queue(context.server, context.queue), context.order.trigger == DAEMON  # others want it now
        archiver = context.services.stores.dead_archive(
            queue, self.policy, context.begin(), context.ledger, paced=paced
        )
        going: Future[None] | None = None
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="trim") as behind:  # leaving waits for what is going
            try:
                for first in range(0, len(victims), ARCHIVE_PAGE):
                    if context.budget.up:
                        self.report.more = True
                        break
                    some = victims[first : first + ARCHIVE_PAGE]
                    proven, flows = self._archive(archiver, some, going)
                    carried = contextvars.copy_context()  # with the caller's deadline
                    going = behind.submit(carried.run, self._delete, some, proven, flows)
                if going is not None:
                    going.result()
            except EmqError as fault:
                other = going.exception() if going is not None else None
                if isinstance(other, EmqError) and other is not fault:
                    fault.what += f"; and, while that was tried, {other}"
                raise

    def _archive(
        self, archiver: DeadArchiver, victims: Sequence[Victim], going: Future[None] | None
    ) -> tuple[_Proven, Mapping[str, FlowRecords]]:
        """Those that are proven to be in the archive, and the flows of flow parents; both are in the ledger too. The
        report is left alone until those that are `going` have gone."""
        context = self.context
        flows = keep_flow_records(context.server, context.ledger, self.keys, victims)
        jobs = [victim.job for victim in victims]
        facts, fingerprints = facts_and_fingerprints(context.ledger, context.queue, jobs)
        for job, kept in flows.items():
            facts[job] = [*facts.get(job, ()), *kept.facts]
        receipt = archiver.archive(jobs, facts, now_ms=context.seen.now_ms)
        if going is not None:
            going.result()
        self.report.archived += receipt.folded
        for job, reason in receipt.failed.items():
            self.report.skip(job, f"not archived: {reason}")
        self.report.survived += len(receipt.gone)
        self.report.waiting += len(receipt.waiting)
        flat = {job: archived for job, archived in receipt.proven.items() if job not in flows}
        renew_snapshots(context.server, context.ledger, self.keys, flat, fingerprints)
        return receipt.proven, flows

    def _delete(self, victims: Sequence[Victim], proven: _Proven | None, flows: Mapping[str, FlowRecords]) -> None:
        size = self.policy.slice
        for first in range(0, len(victims), size * FLUSH):
            if self.context.budget.up:
                self.report.more = True
                return
            stop = min(first + size * FLUSH, len(victims))
            self._flush([victims[at : min(at + size, stop)] for at in range(first, stop, size)], proven, flows)

    def _flush(self, slices: list[Sequence[Victim]], proven: _Proven | None, flows: Mapping[str, FlowRecords]) -> None:
        """Sends some slices at once, and takes their replies in turn up to the first that failed, which is raised."""
        keys, report, context = self.keys, self.report, self.context
        calls: list[tuple[list[str], list[Arg]]] = []
        for some in slices:
            going = some if proven is None else [victim for victim in some if victim.job in proven]
            args = [*self.fence.args, keys.base, *call_tail(going, proven, flows)]
            calls.append(([self.fence.key, keys.dead, keys.exempt], args))
        for some, reply in zip(slices, context.server.run_many(load("dead_trim"), calls), strict=True):
            if isinstance(reply, EmqError):
                raise reply
            count, stay = reply
            note_stay(report, stay)
            left = {job.decode("ascii") for job in stay[::2]}
            if proven is not None:
                left.update(victim.job for victim in some if victim.job not in proven)
            self.stay |= left
            self.done += len(some)
            self.removed += int(count)
            report.removed += int(count)
            if len(report.removed_jobs) < NAMED:
                name_some(report.removed_jobs, [victim.job for victim in some if victim.job not in left])
            context.emit(SliceTrimmed(report.queue, context.run, removed=int(count), skipped=len(left)))

"""The merging of small segments, stream by stream, beside reads and folds."""

from __future__ import annotations

from dataclasses import dataclass

from emq_archive.local.store import SqlStore
from emq_archive.model import LAST_ID, Policy, StreamId, StreamRef, Writer, next_id
from emq_archive.source import StreamSource
from emq_archive.upkeep.compact import MergeLimits, compact
from emq_archive.upkeep.prune import prune
from emq_archive.write.ship import LogShipper
from emq_ops.ledger.ownership import states_of
from emq_ops.passes.frame.context import Context
from emq_ops.passes.frame.contract import Work
from emq_ops.passes.frame.order import Order, Prediction
from emq_ops.passes.lease.holder import who
from emq_ops.passes.report import PassReport
from emq_ops.passes.upkeep.declared import CompactPolicy
from emq_ops.protocol.deadline import deadline
from emq_ops.protocol.errors import DeadlineError
from emq_ops.protocol.queue import Queue


@dataclass(slots=True)
class CompactReport(PassReport):
    """`merged` segments became `segments`; `deleted` objects were past their grace; `pruned` records left the local
    database."""

    merged: int = 0
    segments: int = 0
    deleted: int = 0
    pruned: int = 0

    def counts(self) -> dict[str, int]:
        """The numbers, for the ledger."""
        numbers = {name: getattr(self, name) for name in ("merged", "segments", "deleted", "pruned")}
        return {name: number for name, number in numbers.items() if number}


class Compaction(Work):
    """The pass. What it merges stays readable under the old names for the grace."""

    def report(self, order: Order) -> CompactReport:
        """An empty report of a run."""
        return CompactReport(order.queue)

    def run(self, context: Context) -> None:
        """Merges what is small and prunes what is old; ends early where the time or its bounds are used up. Raises what
        the stores raise."""
        policy: CompactPolicy = context.policy
        report: CompactReport = context.report
        local, left = context.services.stores.local(), policy.most_bytes
        for ref in local.streams(context.queue):
            with deadline(context.budget.left):
                shipper = _shipper(context, local, ref)
                if not shipper.catalog.known().lsn:
                    continue
                try:
                    limits = MergeLimits(policy.below_bytes, left)
                    done = compact(shipper, now_ms=context.now_ms, limits=limits)
                    report.pruned += prune(shipper, now_ms=context.now_ms, below=_head(context, ref))
                except DeadlineError:
                    report.more = True
                    return
            left -= done.read
            report.merged += done.merged
            report.segments += done.segments
            report.deleted += done.deleted
            report.more = report.more or done.more
        local.give_back_space()

    def predict(self, context: Context) -> Prediction:
        """How many segments would be merged."""
        report = CompactReport(context.queue, status="dry")
        policy: CompactPolicy = context.policy
        local = context.services.stores.local()
        for ref in local.streams(context.queue):
            shipper = LogShipper(local, context.services.stores.remote(), ref, _policy(policy), Writer(""))
            limits = MergeLimits(policy.below_bytes, policy.most_bytes)
            done = compact(shipper, now_ms=context.now_ms, limits=limits, dry_run=True)
            report.merged += done.merged
            report.segments += done.segments
        return Prediction(report, count=report.merged, moves=("small", "merged"))


def _policy(policy: CompactPolicy) -> Policy:
    return Policy(
        segment_bytes=policy.segment_bytes,
        local_keep_ms=policy.local_keep_ms,
        compact_grace_ms=policy.compact_grace_ms,
    )


def _shipper(context: Context, local: SqlStore, ref: StreamRef) -> LogShipper:
    fence = context.begin(tell=False)
    writer = Writer(fence.state, fence.token, who(), states_of(context.ledger))
    return LogShipper(local, context.services.stores.remote(), ref, _policy(context.policy), writer)


def _head(context: Context, ref: StreamRef) -> StreamId | None:
    """Below which id rows may be pruned: what stands in a stream is read again by the next process. None: nothing."""
    if ref.kind == "dead":
        return LAST_ID
    if context.policy.local_keep_ms is None:
        return None
    facts, _ = StreamSource(Queue(context.server, ref.queue), ref.stream).observe(None)
    return (facts.first or next_id(facts.last_generated)) if facts.exists else None

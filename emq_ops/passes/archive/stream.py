"""The stream archive as a pass: policy, fence and deadline in, report out. See `emq_archive.driver`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from emq_archive.driver import Driver, Progress
from emq_archive.local.store import SqlStore
from emq_archive.model import Policy, Redact, StreamId, Writer
from emq_archive.ports import Remote
from emq_archive.reports import CycleReport
from emq_archive.source import StreamSource
from emq_archive.write.facts import StreamFacts
from emq_ops.ledger.ownership import states_of
from emq_ops.passes.archive.report import ArchiveReport
from emq_ops.passes.events import StreamArchived
from emq_ops.passes.frame.context import Context
from emq_ops.passes.frame.contract import Work
from emq_ops.passes.frame.order import Facts, Glance, Order, Prediction
from emq_ops.passes.frame.stores import Stores
from emq_ops.passes.lease.holder import who
from emq_ops.policy.models import ArchivePolicy, Redaction, StreamPolicy
from emq_ops.protocol.deadline import deadline
from emq_ops.protocol.fence import Fence
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server


def archiving(policy: ArchivePolicy) -> Policy:
    """What streams and dead jobs have in common, as the driver takes it."""
    redact = policy.redact or Redaction()
    return Policy(
        segment_bytes=policy.segment_bytes,
        ship_after_ms=policy.ship_after_ms,
        trim_after=policy.trim_after,
        local_keep_ms=policy.local_keep_ms,
        expire_after_ms=policy.expire_after_ms,
        compact_grace_ms=policy.compact_grace_ms,
        redact=Redact(redact.drop, redact.hash, redact.salt or ""),
    )


def driver_policy(policy: StreamPolicy) -> Policy:
    """A stream's policy as the driver takes it. On a protected queue records are archived, and none is trimmed."""
    keep, max_age_ms = (None, None) if policy.protect else (policy.keep, policy.max_age_ms)
    return replace(archiving(policy.archiving), keep=keep, max_age_ms=max_age_ms, groups=policy.groups)


class StreamArchive:
    """The pass over one stream. Keep it from run to run: it remembers how far it read in this life of the process, so
    that a run with nothing to do costs next to nothing. One thread at a time.
    """

    def __init__(
        self, server: Server, queue: str, stream: str, policy: StreamPolicy, local: SqlStore, remote: Remote
    ) -> None:
        self.policy = policy
        self._source = StreamSource(Queue(server, queue), stream)
        self._local, self._remote = local, remote
        self._driver: Driver | None = None

    def run(
        self,
        fence: Fence,
        log: Writer,
        *,
        force: bool = False,
        below: StreamId | None = None,
        progress: Progress | None = None,
    ) -> CycleReport:
        """One cycle under the queue's lease. `log`: who writes the remote log. `force`: all that the
        policy lets go is shipped and trimmed at once; nothing at or above `below` is trimmed. `progress`: see `Driver`.

        Raises what `Driver.cycle` raises; `report` says what was done before.
        """
        if self._driver is None:
            self._driver = Driver(self._source, self._local, self._remote, driver_policy(self.policy), fence, log)
        self._driver.lead(fence, log)
        return self._driver.cycle(force=force, below=below, max_removals=self.policy.max_removals, progress=progress)

    def preview(self) -> CycleReport:
        """What a forced run would do; changes nothing, needs no lease."""
        policy = driver_policy(self.policy)
        return Driver(self._source, self._local, self._remote, policy, None, Writer("")).preview()

    def told(self, run: str) -> StreamArchived:
        """The last run as an event."""
        done, tally = self.report, None if self._driver is None else self._driver.tally
        return StreamArchived(
            done.queue,
            run,
            stream=done.stream,
            read=done.folded,
            shipped=done.shipped,
            trimmed=done.trimmed,
            lag_ms=done.lag_ms,
            tally=tally,
        )

    @property
    def report(self) -> CycleReport:
        """Of the present or last run."""
        ref = self._source.ref
        return self._driver.report if self._driver is not None else CycleReport.of(ref)


@dataclass(frozen=True, slots=True)
class _Rest:
    """A stream as a cycle left it with nothing more to do. `facts`: None where it was never heard of; `unshipped`: what
    is folded waits to be shipped."""

    facts: StreamFacts | None
    policy: StreamPolicy
    unshipped: bool


class StreamPass(Work):
    """The pass. What is remembered of a stream from run to run lies in the process's memory of passes."""

    def report(self, order: Order) -> ArchiveReport:
        """An empty report of a run."""
        return ArchiveReport(order.queue, stream=order.target)

    def run(self, context: Context) -> None:
        """One cycle. Raises what `Driver.cycle` raises; the report says what was done before."""
        order, memory = context.order, context.services.memory
        archive = memory.get(context.memory_key)
        if not isinstance(archive, StreamArchive) or archive.policy != order.policy:
            archive = memory[context.memory_key] = _open(context)
        fence = context.begin(tell=False)
        try:
            with deadline(context.budget.left):
                log = Writer(fence.state, fence.token, who(), states_of(context.ledger))
                archive.run(fence, log, force=order.force, progress=order.progress)
        finally:
            done = archive.report
            context.report.add(done)
            if done.folded or done.shipped or done.trimmed:
                context.emit(archive.told(context.run))

    def predict(self, context: Context) -> Prediction:
        """What a forced run would do."""
        report = context.report
        report.add(_open(context).preview())
        report.status = "dry"
        return Prediction(report)

    def glance(self, queue: str, target: str) -> Glance:
        """How the stream stands."""
        return Glance("stream_facts", (keys_of(queue).stream(target),), StreamFacts.of)

    def due(self, facts: Facts) -> bool:
        """Whether the stream moved since nothing was left to do, grew old enough to be trimmed, or something that was
        folded waits to be shipped."""
        rest, now, policy = facts.rest, facts.now, facts.policy
        if rest is None or rest.policy != policy:
            return True
        if rest.facts is None:
            return bool(now.exists)
        if not _unmoved(rest.facts, now):
            return True
        if rest.unshipped and facts.rest_s >= policy.archiving.ship_after_ms / 1000:
            return True
        age, most = None if now.first is None else now.now_ms - now.first[0], driver_policy(policy).max_age_ms
        return most is not None and age is not None and age > most

    def unheard(self, stores: Stores, wanted: Mapping[tuple[str, str], StreamPolicy]) -> dict[tuple[str, str], _Rest]:
        """Streams without a row in the local database. What expires by age is looked at by a first run all the same."""
        mild = {named: policy for named, policy in wanted.items() if policy.archiving.expire_after_ms is None}
        known = stores.local().known(sorted({queue for queue, _ in mild})) if mild else set()
        return {named: _Rest(None, policy, False) for named, policy in mild.items() if named not in known}

    def rest(self, before: StreamFacts | None, report: ArchiveReport, policy: StreamPolicy) -> _Rest | None:
        """How the stream stood right before a cycle that left nothing to do: it read all there was then. Where it took
        something away, the stream stands otherwise now."""
        if before is None or report.status != "done":
            return None
        left = report.lag_records or report.refused or report.unstorable
        keep = driver_policy(policy).keep
        over = keep is not None and before.length > keep
        return None if report.trimmed or left or over else _Rest(before, policy, report.unshipped > 0)


def _open(context: Context) -> StreamArchive:
    order, stores = context.order, context.services.stores
    return StreamArchive(context.server, order.queue, order.target, order.policy, stores.local(), stores.remote())


def _unmoved(before: StreamFacts, now: StreamFacts) -> bool:
    return (before.run_id, before.exists, before.last_generated, before.entries_added, before.length, before.first) == (
        now.run_id,
        now.exists,
        now.last_generated,
        now.entries_added,
        now.length,
        now.first,
    )

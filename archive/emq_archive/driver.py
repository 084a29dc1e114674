"""One cycle of the archive driver: read, store, ship, prove, and only then trim.

The order is the safety: a record leaves the stream only after the archive was read back and holds it. Whatever ends a
cycle, the next one goes on from what is stored: nothing is lost, nothing twice.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable

from emq_archive.local.store import SqlStore
from emq_archive.model import Policy, StreamId, Writer, next_id, show_id
from emq_archive.ports import Remote
from emq_archive.reports import CycleReport, Outbox, Shipped
from emq_archive.source import StreamSource
from emq_archive.tally import STREAM, Tally
from emq_archive.upkeep.prune import prune
from emq_archive.write.facts import StreamFacts
from emq_archive.write.pace import BURST, MANY, Allowance, reading_ends
from emq_archive.write.ship import LogShipper
from emq_archive.write.trimming import Trimming, told
from emq_archive.write.watermark import Watermark
from emq_ops.protocol.errors import DamagedError, EmqError, ServerError
from emq_ops.protocol.fence import Fence

Progress = Callable[[int, int], None]


class Driver:
    """Archives one stream: call `cycle` as often as wanted, from one thread.

    `fence` is the lease under which it runs (`lead` when it was taken anew); None for use without one, which trims only
    where nobody leads the queue. `writer` says who writes the remote log; None: this process, for the fence's state, or
    without one for the local database's. `report` is of the present or last cycle, also when that raised.
    """

    def __init__(
        self,
        source: StreamSource,
        local: SqlStore,
        remote: Remote,
        policy: Policy,
        fence: Fence | None = None,
        writer: Writer | None = None,
    ) -> None:
        if writer is None:
            state, token = (fence.state, fence.token) if fence is not None else (local.state(), 0)
            writer = Writer(state, token, f"{socket.gethostname()}:{os.getpid()}")
        self.source = source
        self.local = local
        self.policy = policy
        self.fence = fence
        self.shipper = LogShipper(local, remote, source.ref, policy, writer)
        self.report = CycleReport.of(source.ref)
        self.tally = Tally()
        """Of the completions that this or the last cycle read for the first time."""
        self.watermark = Watermark(source.queue, source.ref.stream, self.shipper.holds_evt)
        self._cached: str | None = None
        self._trim_ships = Allowance(BURST, policy.ship_after_ms)
        self._fault: EmqError | None = None
        self._outbox: Outbox | None = None  # since this cycle last changed it

    def lead(self, fence: Fence | None, writer: Writer) -> None:
        """From here on under another lease. What was seen under the lease before may have changed hands meanwhile: the
        stream is read again from its head."""
        if (fence and fence.token) != (self.fence and self.fence.token):
            self.source.forget()
        self.fence = fence
        self.shipper.log.writer = writer

    def cycle(
        self,
        *,
        force: bool = False,
        below: StreamId | None = None,
        max_removals: int | None = None,
        progress: Progress | None = None,
    ) -> CycleReport:
        """One cycle. `force` (a one-shot fold) ships all there is, so that all may go that the policy lets go. Nothing
        at or above `below` is trimmed (what a plan showed), and nothing at all where it would be more than
        `max_removals`. `progress` is called with how many records were read, of how many.

        Raises what the local database, the remote and the server raise; `report` then says what was done before. A
        fault of the remote comes last: what was read is in the local database by then.
        """
        return self._cycle(force, below, max_removals, progress or _no_progress)

    def _cycle(self, force: bool, below: StreamId | None, max_removals: int | None, progress: Progress) -> CycleReport:
        facts = self._observe()
        self._fold(facts, progress)
        bound = self._policy_bound(facts)
        if bound is not None and below is not None:
            bound = min(bound, below)
        if bound is not None and max_removals is not None:
            count = self.source.count_below(bound)
            if count > max_removals:
                self.report.refused.append(f"not trimmed: {count} would go, more than max_removals {max_removals}")
                bound = None
        self._ship(facts, bound, force)
        self._cache_watermark()
        if self._fault is None or self.policy.trim_after == "local":
            self._trim(facts, bound)
        self._conclude(facts)
        if self._fault is not None:
            raise self._fault
        return self.report

    def preview(self) -> CycleReport:
        """What a forced cycle would do, as far as that can be known without doing it: `folded` counts what was not read
        by an earlier cycle, `trimmed` what the policy lets go of and no group needs, `bound` is of the age alone.
        Changes nothing."""
        report = self.report = CycleReport.of(self.source.ref)
        self.watermark.check()
        stored = self.local.frontier(self.source.ref)
        facts, ended = self.source.observe(stored)
        outbox = self.local.outbox(self.source.ref)
        if stored is None or ended:
            report.folded = facts.length
        elif stored.last is None or stored.last < facts.last_generated:
            report.folded = self.source.count_unread(stored)
        report.shipped = outbox.records + report.folded
        if self.policy.keep is not None:
            report.trimmed = max(0, facts.length - self.policy.keep)
        if self.policy.max_age_ms is not None:
            bound = (max(0, facts.now_ms - self.policy.max_age_ms), 0)
            report.bound = show_id(bound)
            report.trimmed = max(report.trimmed, self.source.count_upto(bound, facts.length))
        needs = [group.needs for group in facts.groups if group.needs is not None]
        if needs and report.trimmed and self.policy.groups == "respect":
            report.trimmed = self.source.count_upto(min(needs), report.trimmed)
        report.groups = [told(self.source, group) for group in facts.groups if group.needs is not None]
        report.watermark = self.shipper.watermark()
        return report

    def _observe(self) -> StreamFacts:
        self.report = CycleReport.of(self.source.ref)
        self.tally = Tally()
        self._fault = self._outbox = None
        self.watermark.check()
        facts, ended = self.source.observe(self.local.frontier(self.source.ref))
        if ended:
            self.report.notes.append(ANEW)
        return facts

    def _fold(self, facts: StreamFacts, progress: Progress) -> None:
        """Everything up to the top, as it was when the cycle began, goes into the local database."""
        done, total = 0, self.source.behind
        for part in self.source.batches(self.policy.page, self.policy.batch, reading_ends()):
            added = self.local.add(self.source.ref, part.batch, part.frontier, self.policy)
            self.report.folded += added.new
            if self.source.ref.stream == STREAM and added.new == part.batch.records:
                self.tally.add(part.batch.chunk())  # a batch that an earlier process knew in part was counted there
            self.report.known += added.known
            self.report.reborn += added.reborn
            self.report.erased += added.erased
            for refused in added.unstorable:
                self.source.unstorable[refused.id] = refused.reason
            self._outbox = None
            done += part.batch.records
            progress(done, max(done, total))
            if self._fault is None and self.shipper.due(facts.now_ms, self._waiting()):
                self._send(facts, force=False)
        if self.source.anew or (self.report.reborn and ANEW not in self.report.notes):
            self.report.notes.append(ANEW)
        if self.source.missed and (missed := self._missed()):
            told = f"{missed} records were taken out of the stream by others before this host read them"
            self.report.notes.append(told)
        if self.source.behind:
            self.report.notes.append(f"the time was up with {self.source.behind} records still to read")

    def _missed(self) -> int:
        """How many entries are gone that neither this host read nor the archive holds: a local database that was put
        back from an earlier day knows less than the log."""
        with contextlib.suppress(EmqError):
            self.shipper.log.read()
        since = self.source.missed_since
        held = sum(s.records for s in self.shipper.catalog.segments(start=since) if s.first > since)
        return max(0, self.source.missed - held)

    def _policy_bound(self, facts: StreamFacts) -> StreamId | None:
        """Up to which id (exclusive) the policy lets go of what was read; None: of nothing."""
        position, policy = self.source.position, self.policy
        if position is None or facts.first is None:
            return None
        # The very last id has no next one: such a stream takes no more entries, and its last one stays.
        top = next_id(position) or position
        bounds: list[StreamId] = []
        if policy.max_age_ms is not None:
            bounds.append((max(0, facts.now_ms - policy.max_age_ms), 0))
        if policy.keep == 0:
            bounds.append(top)
        elif policy.keep is not None and facts.length > policy.keep:
            nth = self.source.nth_newest(policy.keep)
            if nth is not None:
                bounds.append(nth)
        bound = min(max(bounds), top) if bounds else facts.first
        return bound if bound > facts.first else None

    def _ship(self, facts: StreamFacts, bound: StreamId | None, force: bool) -> None:
        if self._fault is not None:
            return
        outbox = self._waiting()
        if outbox.records and not force and bound is not None and self.policy.trim_after == "remote":
            waits = outbox.first is not None and outbox.first < bound
            force = waits and (outbox.records >= MANY or self._trim_ships.take(facts.now_ms))
            if waits and not force:
                self.report.notes.append("some records that may go wait for the next segment")
        if (force and outbox.records) or self.shipper.due(facts.now_ms, outbox):
            self._send(facts, force=force)

    def _waiting(self) -> Outbox:
        """What is not shipped; asked once until this cycle changes it."""
        if self._outbox is None:
            self._outbox = self.local.outbox(self.source.ref)
        return self._outbox

    def _send(self, facts: StreamFacts, *, force: bool) -> None:
        self._outbox = None
        try:
            shipped: Shipped = self.shipper.ship(now_ms=facts.now_ms, force=force)
        except EmqError as fault:
            self._fault = fault
            return
        self.report.shipped += shipped.records
        self.report.segments += shipped.segments
        self.report.lsn = shipped.lsn

    def _cache_watermark(self) -> None:
        """For other readers; a server without room, or a key of another type there, must not stop the archive."""
        evt = self.report.watermark = self.shipper.watermark()
        if evt is None or evt == self._cached:
            return
        try:
            if not self.watermark.cache(self.fence, evt):
                self.report.notes.append("the watermark on the server is higher than ours, and was left")
        except (ServerError, DamagedError) as fault:
            self.report.notes.append(f"the watermark could not be written: {fault}")
            return
        self._cached = evt

    def _trim(self, facts: StreamFacts, bound: StreamId | None) -> None:
        if bound is not None:
            Trimming(self.source, self.local, self.shipper, self.policy, self.fence, self.report).run(facts, bound)
            self._outbox = None  # it may have read and stored once more

    def _conclude(self, facts: StreamFacts) -> None:
        if facts.exists:
            # What stands in the stream is read again by the next process, so its rows stay.
            gone = facts.first or next_id(facts.last_generated)
            if self._fault is None:  # while the archive is in doubt, nothing local goes
                try:
                    prune(self.shipper, now_ms=facts.now_ms, below=gone)
                except EmqError as fault:
                    self._fault = fault
        self.report.unshipped = self._waiting().records
        self.report.lag_records = self.source.behind
        if self.report.lag_records and self.source.position is not None:
            self.report.lag_ms = max(0, facts.now_ms - self.source.position[0])
        self.report.unstorable = [{"id": show_id(i), "reason": reason} for i, reason in self.source.unstorable.items()]


def _no_progress(_done: int, _total: int) -> None:
    pass


ANEW = "the stream or its server was made anew since the last look; read from its head"

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
from emq_archive.reports import Outbox, Report, Shipped
from emq_archive.source import StreamSource
from emq_archive.upkeep.prune import prune
from emq_archive.write.facts import Facts, Group
from emq_archive.write.pace import Allowance, reading_ends
from emq_archive.write.ship import LogShipper
from emq_archive.write.trim import Trimmed, Trimmer, set_watermark
from emq_ops.protocol import deadline
from emq_ops.protocol.errors import DamagedError, EmqError, OutcomeUnknownError, ServerError
from emq_ops.protocol.fence import Fence

Progress = Callable[[int, int], None]

BURST = 20
"""Ships for the sake of a trim alone that may come at once; one more every `ship_after`. So a stream of light traffic
with a small `keep` does not become a segment a cycle."""
MANY = 1000
"""Where so many records wait, a trim ships them at once all the same."""


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
        self.report = Report(source.ref.queue, source.ref.stream)
        self._watermark: str | None = None
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
    ) -> Report:
        """One cycle. `force` (a one-shot fold) ships all there is, so that all may go that the policy lets go. Nothing
        at or above `below` is trimmed (what a plan showed), and nothing at all where it would be more than
        `max_removals`. `progress` is called with how many records were read, of how many.

        Raises what the local database, the remote and the server raise; `report` then says what was done before. A
        fault of the remote comes last: what was read is in the local database by then.
        """
        return self._cycle(force, below, max_removals, progress or _no_progress)

    def _cycle(self, force: bool, below: StreamId | None, max_removals: int | None, progress: Progress) -> Report:
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

    def preview(self) -> Report:
        """What a forced cycle would do, as far as that can be known without doing it: `folded` counts what was not read
        by an earlier cycle, `trimmed` what the policy lets go of and no group needs, `bound` is of the age alone.
        Changes nothing."""
        report = self.report = Report(self.source.ref.queue, self.source.ref.stream)
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
        report.groups = [self._told(group) for group in facts.groups if group.needs is not None]
        report.watermark = self.shipper.watermark()
        return report

    def _observe(self) -> Facts:
        self.report = Report(self.source.ref.queue, self.source.ref.stream)
        self._fault = self._outbox = None
        facts, ended = self.source.observe(self.local.frontier(self.source.ref))
        if ended:
            self.report.notes.append(ANEW)
        return facts

    def _fold(self, facts: Facts, progress: Progress) -> None:
        """Everything up to the top, as it was when the cycle began, goes into the local database."""
        done, total = 0, self.source.behind
        for part in self.source.batches(self.policy.page, self.policy.batch, reading_ends()):
            added = self.local.add(self.source.ref, part.batch, part.frontier, self.policy)
            self.report.folded += added.new
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
        if self.source.anew:
            self.report.notes.append(ANEW)
        if self.source.missed:
            told = f"{self.source.missed} records were taken out of the stream by others before this host read them"
            self.report.notes.append(told)
        if self.source.behind:
            self.report.notes.append(f"the time was up with {self.source.behind} records still to read")

    def _policy_bound(self, facts: Facts) -> StreamId | None:
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

    def _ship(self, facts: Facts, bound: StreamId | None, force: bool) -> None:
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

    def _send(self, facts: Facts, *, force: bool) -> None:
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
        if evt is None or evt == self._watermark:
            return
        try:
            if not set_watermark(self.source.queue, self.source.ref.stream, self.fence, evt):
                self.report.notes.append("the watermark on the server is higher than ours, and was left")
        except (ServerError, DamagedError) as fault:
            self.report.notes.append(f"the watermark could not be written: {fault}")
            return
        self._watermark = evt

    def _trim(self, facts: Facts, bound: StreamId | None) -> None:
        first_read = self.source.first_read
        if bound is None or facts.first is None or first_read is None:
            return
        receipt = self.shipper.prove(bound, start=facts.first)
        self.report.lsn = receipt.lsn or self.report.lsn
        if receipt.bound is None or receipt.bound <= facts.first:
            return
        self.report.bound = show_id(receipt.bound)
        trimmer = Trimmer(
            self.source.queue,
            self.source.ref.stream,
            self.fence,
            facts.run_id,
            self.policy.groups,
            self.source.unstorable,
        )
        looked: StreamId | None = None
        while True:
            upto, marks = self.source.marks.slice(receipt.bound)
            if not marks:
                return
            if deadline.passed():
                self.report.refused.append("the time was up; the next cycle trims the rest")
                return
            try:
                done = trimmer.slice(upto, marks)
            except OutcomeUnknownError:
                self._count_lost(facts)
                raise
            if done.verdict in ("moved", "changed") and looked != marks[-1].last:
                # Entries that others deleted by name, say: what is left is compared once more, as it stands now.
                looked = marks[-1].last
                if self._store_again(looked):
                    continue
            if not self._account(done, facts):
                return
            self.source.marks.trimmed(marks, done.left)
            if done.held or not done.removed or upto == receipt.bound:
                return

    def _count_lost(self, facts: Facts) -> None:
        """The reply of a slice was lost: what it removed is told by what stands now, and reading begins anew."""
        self.source.forget()
        with contextlib.suppress(EmqError):
            now = self.source.look()
            if now.run_id == facts.run_id and now.exists:
                added = max(0, now.entries_added - facts.entries_added)
                self.report.trimmed = max(self.report.trimmed, facts.length + added - now.length)

    def _store_again(self, last: StreamId) -> bool:
        """Reads and stores what stands up to `last`, where a mark ends; whether all of it was archived before."""
        fresh = 0
        for part in self.source.again(last):
            added = self.local.add(self.source.ref, part.batch, part.frontier, self.policy)
            fresh += added.new + len(added.unstorable)
            self.report.folded += added.new
            self.report.reborn += added.reborn
            self._outbox = None
        return not fresh

    def _account(self, done: Trimmed, facts: Facts) -> bool:
        """Notes what a slice did; whether it did anything."""
        first, stood = done.first, facts.first
        if not self.report.trimmed and first is not None and stood is not None and first > stood:
            moved = f"from {show_id(stood)} to {show_id(first)}"
            self.report.notes.append(f"somebody else trimmed the stream meanwhile: its head moved {moved}")
        if done.verdict != "trimmed":
            self.report.refused.append(REFUSALS.get(done.verdict, REFUSALS["changed"]))
            self.source.forget()
            return False
        self.report.trimmed += done.removed
        if done.held:
            self.report.groups = [self._told(group) for group in done.held]
            self.report.bound = show_id(done.bound)
        return True

    def _told(self, group: Group) -> dict[str, object]:
        undelivered = group.undelivered
        if undelivered is None:
            undelivered = self.source.count_above(group.delivered)
        needs = show_id(group.needs) if group.needs else None
        return {"name": group.name, "pending": group.pending, "undelivered": undelivered, "needs": needs}

    def _conclude(self, facts: Facts) -> None:
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
REFUSALS = {
    "gone": "not trimmed: the stream was deleted since it was read",
    "life": "not trimmed: the server was started anew since the stream was read; the next cycle reads it from its head",
    "changed": "not trimmed: the stream was made anew, or went back, since it was read: other entries stand in it than "
    "were archived; the next cycle reads it from its head",
}

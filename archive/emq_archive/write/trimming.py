"""The last step of a cycle: what is proven leaves the stream, slice by slice; the report tells why the rest stays."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from emq_archive.local.store import SqlStore
from emq_archive.model import Policy, StreamId, show_id
from emq_archive.reports import CycleReport
from emq_archive.source import StreamSource
from emq_archive.write.facts import Group, StreamFacts
from emq_archive.write.ship import LogShipper
from emq_archive.write.trim import Trimmed, Trimmer
from emq_ops.protocol import deadline
from emq_ops.protocol.errors import EmqError, OutcomeUnknownError
from emq_ops.protocol.fence import Fence

REFUSALS = {
    "gone": "not trimmed: the stream was deleted since it was read",
    "life": "not trimmed: the server was started anew since the stream was read; the next cycle reads it from its head",
    "changed": "not trimmed: the stream was made anew, or went back, since it was read: other entries stand in it than "
    "were archived; the next cycle reads it from its head",
}


@dataclass(slots=True)
class Trimming:
    """One cycle's trim."""

    source: StreamSource
    local: SqlStore
    shipper: LogShipper
    policy: Policy
    fence: Fence | None
    report: CycleReport

    def run(self, facts: StreamFacts, bound: StreamId) -> None:
        """Trims what is below `bound` (exclusive), as far as it is proven and nobody needs it."""
        if facts.first is None or self.source.first_read is None:
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
        ignored = [group.name for group in facts.groups if group.needs is not None and group.needs < receipt.bound]
        if ignored and self.policy.groups == "ignore":
            self.report.notes.append(f"trimmed past what consumer groups still need: {', '.join(ignored)}")
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

    def _count_lost(self, facts: StreamFacts) -> None:
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
        return not fresh

    def _account(self, done: Trimmed, facts: StreamFacts) -> bool:
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
            self.report.groups = [told(self.source, group) for group in done.held]
            self.report.bound = show_id(done.bound)
        return True


def told(source: StreamSource, group: Group) -> dict[str, object]:
    """What a report says of a consumer group."""
    undelivered = source.count_above(group.delivered) if group.undelivered is None else group.undelivered
    needs = show_id(group.needs) if group.needs else None
    return {"name": group.name, "pending": group.pending, "undelivered": undelivered, "needs": needs}

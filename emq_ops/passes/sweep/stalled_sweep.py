"""The stalled sweep of one queue: lapsed leases go back to wait, or die when they stalled too often."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

from emq_ops.ledger import interruptions
from emq_ops.ledger.interruptions import Contact
from emq_ops.passes.events import Died, SliceSwept
from emq_ops.passes.frame.context import Context
from emq_ops.passes.frame.order import Facts, Order, Prediction
from emq_ops.passes.observe.competitors import check_competitors
from emq_ops.passes.observe.evidence import JudgingContext, LapsedLease
from emq_ops.passes.observe.interruptions import judging_context
from emq_ops.passes.observe.queue_state import QueueState, observe, same_life
from emq_ops.passes.observe.queue_work import QueueWork
from emq_ops.passes.observe.reconcile import agreed, reconcile
from emq_ops.passes.observe.rows import token_of
from emq_ops.passes.report import name_some
from emq_ops.passes.sweep.guard import bound, would_die
from emq_ops.passes.sweep.predict import predict_sweep
from emq_ops.passes.sweep.report import SweepReport
from emq_ops.passes.sweep.slices import (
    BURST,
    UNRECORDED,
    Listed,
    Slice,
    SliceCall,
    SliceTotals,
    judge_all,
    native_slice,
    record_slice,
    run_slice,
)
from emq_ops.policy.models import StalledPolicy
from emq_ops.protocol.errors import EmqError
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.queue import MIN_INSTANT_MS
from emq_ops.protocol.scores import score_ms
from emq_ops.protocol.scripts import load

BURST_LEASES = 10
"""So many counted stalls in one pass are a burst: a worker host went away."""
_EMPTY_SLICES = 3
_TIDY_PAGE = 500
_SEEN_EVERY_MS = 10_000


class StalledSweep(QueueWork):
    """The pass. Sweeps until nothing is due, or until the caller's deadline. What an earlier run did and could not
    record is recorded first. Facts and slices are of one life of the server."""

    def report(self, order: Order) -> SweepReport:
        """An empty report of a run."""
        policy: StalledPolicy = order.policy
        return SweepReport(order.queue, max_stalled=policy.max_stalled, restart=policy.restart)

    def run(self, context: Context) -> None:
        """Sweeps."""
        with context.ledger.read() as connection:
            contact = interruptions.contact_of(connection, context.queue)
            judging = judging_context(
                connection,
                context.seen,
                contact,
                context.newest,
                context.policy.lease_ms,
                context.services.windows(),
            )
        report: SweepReport = context.report
        report.interruption = judging.interruption.id if judging.interruption is not None else None
        progress: _Progress = context.carried.setdefault("slices", _Progress())
        sweep = _Sweep(context, judging, contact, report, context.policy, progress)
        seen = context.seen
        if context.quiet and seen.due == 0 and not seen.unrecorded and agreed(contact, seen):
            sweep.close_idle()
        else:
            context.begin()
            sweep.work()

    def predict(self, context: Context) -> Prediction:
        """What a sweep would do with the leases that are due now."""
        services = context.services
        report = predict_sweep(
            context.server, context.queue, context.policy, services.ledger, windows=services.windows()
        )
        jobs = (*report.recovered_jobs, *report.dead_jobs)
        return Prediction(report, jobs, report.recovered + report.dead + report.ghosts)

    def due(self, facts: Facts) -> bool:
        """Whether a lease has lapsed, a slice waits to be recorded, or the dead set moved."""
        now: QueueState = facts.now
        return facts.rest is None or bool(now.due) or now.unrecorded or not same_life(facts.rest, now)


@dataclass(slots=True)
class _Progress:
    """What a run carries from life to life: the number of its last slice, the slice that the ledger has last, the jobs
    that it settled, and how many may die (None: any number; `bounded`: whether that was found out)."""

    number: int = 0
    recorded: tuple[str, int] | None = None
    ours: list[str] = field(default_factory=list)
    most: int | None = None
    bounded: bool = False


@dataclass(slots=True)
class _Sweep:
    """One life of a run."""

    context: Context
    judging: JudgingContext
    contact: Contact | None
    report: SweepReport
    policy: StalledPolicy
    progress: _Progress

    @property
    def judged(self) -> bool:
        """Whether leases must be judged before the slice: something may exempt one of them."""
        exempting = bool(self.judging.windows) or self.judging.interruption is not None
        return self.policy.restart == "exempt" and exempting

    def work(self) -> None:
        """Sweeps, and brings the ledger in line with the dead set."""
        context, report = self.context, self.report
        if self._may_begin():
            self._slices()
        after = observe(context.server, context.queue)
        whole = not context.budget.up
        if whole and (report.replayed or not agreed(self.contact, after, report.dead)):
            agreement = reconcile(context, after.now_ms)
            report.found_dead += agreement.new
            report.notes += agreement.notes()
            whole = agreement.whole
        self._warn_of_burst(after.now_ms)
        _tidy(context)
        self._close(after, whole=whole)

    def _may_begin(self) -> bool:
        """Whether no guard stops the run before its first slice."""
        seen, progress = self.context.seen, self.progress
        if not progress.bounded:
            progress.most, progress.bounded = bound(self.policy, seen.active), True
        if progress.most is None or not seen.due:
            return True
        dying = self.report.dead + would_die(self.context, self.judging, judged=self.judged)
        if dying > progress.most:
            self._stop(dying, progress.most)
            return False
        return True

    def _slices(self) -> None:
        report, progress = self.report, self.progress
        now, empty = self.context.seen.now_ms, 0
        while True:
            if self.context.budget.up:
                report.more = True
                return
            listed = self._judge_due(now) if self.judged else None
            done = self._one_slice(listed)
            if done.verdict == BURST:
                self._stop(report.dead + done.deaths, progress.most or 0)
                return
            now = done.at_ms
            if not done.settled:
                empty += 1
                if not listed or empty >= _EMPTY_SLICES:
                    return  # nothing is due, and what was recorded is acknowledged
                continue
            empty = 0
            tally = record_slice(self.context, self.judging, done)
            progress.recorded = done.key
            self._add(done, tally)

    def _one_slice(self, listed: Sequence[Listed] | None) -> Slice:
        progress, run = self.progress, self.context.run
        left = None if progress.most is None else progress.most - self.report.dead
        asked = SliceCall(run, progress.number + 1, progress.recorded, left, listed)
        call = native_slice if self.policy.executor == "native" else run_slice
        done = call(self.context.server, self.context.begin(), self.policy, asked)
        if done.key == (run, progress.number + 1):
            progress.number += 1
        return done

    def _judge_due(self, now_ms: int) -> list[Listed]:
        """The leases due, each with score, attempts and whether it is exempt, as the slice will check them again."""
        keys, server = keys_of(self.context.queue), self.context.server
        # Odd scores are passed over; of what else was set aside there is room for, beside what is well.
        most = self.policy.limit + server.read("HLEN", keys.aside)
        flat = server.read("ZRANGEBYSCORE", keys.active, MIN_INSTANT_MS, now_ms, "WITHSCORES", "LIMIT", 0, most)
        members, scores = flat[::2], flat[1::2]
        jobs = [m.decode("utf-8", "backslashreplace") for m in members]
        found = server.read_each([("HMGET", keys.row_of_member(j), "attempts", "lease_epoch") for j in jobs])
        rows = [[None, None] if isinstance(row, EmqError) else row for row in found]  # the slice sets those aside
        leases = [
            LapsedLease(job, score_ms(score), token_of(row[0]), (row[1] or b"").decode("utf-8", "replace"))
            for job, score, row in zip(jobs, scores, rows, strict=True)
        ]
        with self.context.ledger.read() as connection:
            verdicts = judge_all(connection, self.judging, leases)
        return [
            (job, score, row[0] or b"", verdicts[job].exempt)
            for job, score, row in zip(jobs, scores, rows, strict=True)
        ]

    def _add(self, done: Slice, tally: SliceTotals) -> None:
        report, run = self.report, self.context.run
        self.progress.ours += [one.lease.job for one in done.settled]
        if done.verdict == UNRECORDED and done.run != run:
            report.replayed += 1
            return
        # A slice of this run whose reply was lost is told when it is recorded: it is what this run did.
        report.slices += 1
        names = {"recovered": tally.recovered, "exempted": tally.exempted, "forced": tally.forced}
        names |= {"dead": [death.job for death in tally.dead], "ghosts": tally.ghosts}
        counts = {name: len(jobs) for name, jobs in names.items()}
        for name, count in counts.items():
            setattr(report, name, getattr(report, name) + count)
        name_some(report.recovered_jobs, tally.recovered)
        name_some(report.exempted_jobs, tally.exempted)
        name_some(report.dead_jobs, names["dead"])
        del counts["forced"]
        self.context.emit(SliceSwept(report.queue, run, **counts))
        for d in tally.dead:
            died = Died(report.queue, run, job=d.job, cause=d.cause, attempts=d.attempts, stalls=d.stalls)
            self.context.emit(dataclasses.replace(died, killed_by=done.run))

    def _stop(self, dying: int, most: int) -> None:
        report, seen = self.report, self.context.seen
        report.status = "stopped"
        report.stopped_by = "max_share" if self.policy.max_removals is None else "max_removals"
        text = f"{dying} jobs would be dead-lettered, more than the {most} allowed in one pass: nothing was buried"
        report.notes.append(text)
        facts = {"would_die": dying, "allowed": most, "active": seen.active, "due": seen.due}
        self.context.alert("burst_stopped", text, seen.now_ms, facts)

    def _warn_of_burst(self, now_ms: int) -> None:
        report = self.report
        counted = report.recovered - report.exempted + report.dead
        if counted >= BURST_LEASES:
            text = f"{counted} leases lapsed at once and were counted: a worker host may have gone away"
            jobs = report.dead_jobs[:20] or report.recovered_jobs[:20]
            self.context.alert("burst", text, now_ms, {"leases": counted, "dead": report.dead, "jobs": jobs})

    def close_idle(self) -> None:
        """There was nothing to do: how things stand is stored now and then."""
        seen = self.context.seen
        self.report.competitors = check_competitors(self.context, seen.now_ms, self.progress.ours)
        if self.contact is not None and seen.now_ms - self.contact.seen_ms < _SEEN_EVERY_MS:
            return  # nothing new, and said not long ago
        with self.context.ledger.write() as connection:
            interruptions.update_contact(
                connection, self.context.queue, (seen.run_id, seen.replid), **self._values(seen)
            )

    def _close(self, after: QueueState, *, whole: bool) -> None:
        """Looks for competitors, and stores how things stand now that the run ends."""
        self.report.competitors = check_competitors(self.context, after.now_ms, self.progress.ours)
        values = self._values(after)
        if whole:
            values |= {"agreed_dead": after.dead, "agreed_failed": after.failed}
        with self.context.ledger.write() as connection:
            interruptions.update_contact(connection, self.context.queue, (after.run_id, after.replid), **values)
            self.context.end(connection)

    def _values(self, seen: QueueState) -> dict[str, int]:
        values = {"seen_ms": seen.now_ms, "completed": seen.completed, "failed": seen.failed}
        if not self.report.more and self.report.status == "done":
            values["swept_ms"] = self.context.seen.now_ms
        return values


def _tidy(context: Context) -> None:
    """Forgets the exemptions of jobs that are gone."""
    fence, cursor = context.begin(), b"0"
    keys = fence.keys
    while True:
        cursor, flat = context.server.read("HSCAN", keys.exempt, cursor, "COUNT", _TIDY_PAGE)
        for first in range(0, len(flat), 2 * _TIDY_PAGE):  # a small hash comes whole, whatever COUNT says
            args = [*fence.args, keys.base, *flat[first : first + 2 * _TIDY_PAGE : 2]]
            context.server.run(load("exempt_tidy"), [fence.key, keys.exempt], args)
        if cursor == b"0":
            return

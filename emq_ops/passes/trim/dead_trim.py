"""The dead trim of one queue: what the policy lets go is archived, if it says so, and then deleted."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from emq_ops.ledger import bounds, deaths, holds, interruptions
from emq_ops.ledger.bounds import Bound
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.victims import Listing, Victim, close_trimmed, find_victims, note, up_to
from emq_ops.passes.frame.context import Context
from emq_ops.passes.frame.order import Facts, Order, Prediction
from emq_ops.passes.observe.queue_state import QueueState, observe, same_life
from emq_ops.passes.observe.queue_work import QueueWork
from emq_ops.passes.observe.reconcile import agreed, reconcile
from emq_ops.passes.report import NAMED, name_some
from emq_ops.passes.trim.predict import predict_trim
from emq_ops.passes.trim.removal import Removal
from emq_ops.passes.trim.report import TrimReport
from emq_ops.policy.models import DeadPolicy
from emq_ops.protocol.errors import BadInputError, EmqError
from emq_ops.protocol.ids import min_id


def check_policy(queue: str, policy: DeadPolicy, *, archived: bool) -> None:
    """Refuses what must not run: no bound at all (BadInputError), an archive that is wanted and not there (EmqError;
    `archived`: it is)."""
    if policy.keep is None and policy.max_age_ms is None:
        raise BadInputError("a trim needs keep or max_age", where=queue, fix="say how many or how old may stay")
    if policy.archive and not archived:
        raise EmqError(
            "archive: true, and there is no archive: nothing is trimmed",
            where=queue,
            fix="configure the archive, or set archive: false",
        )


class Trim(QueueWork):
    """The pass. Trims until the policy is met, or until the caller's deadline. With ``archive: true`` dead jobs are
    proven to be in the archive first. The first trim by the applied policy removes nothing that its plan did not
    list."""

    def report(self, order: Order) -> TrimReport:
        """An empty report of a run."""
        policy: DeadPolicy = order.policy
        return TrimReport(order.queue, keep=policy.keep, max_age_ms=policy.max_age_ms)

    def run(self, context: Context) -> None:
        """Trims. Raises what `check_policy` raises."""
        policy: DeadPolicy = context.policy
        check_policy(context.queue, policy, archived=context.services.stores.configured)
        report: TrimReport = context.report
        with context.ledger.read() as connection:
            known = agreed(interruptions.contact_of(connection, context.queue), context.seen)
            bound = bounds.of(connection, context.queue) if context.order.applied else None
        trim = _Trim(context, report, policy, bound)
        victims = trim.plan() if known else None
        if context.quiet and victims == []:
            report.dead_before = report.left = context.seen.dead
            trim.consume_limit()
            return
        context.begin()
        trim.work(victims)

    def predict(self, context: Context) -> Prediction:
        """Whom the policy lets go now."""
        policy: DeadPolicy = context.policy
        check_policy(context.queue, policy, archived=context.services.stores.configured)
        return predict_trim(context.server, context.queue, policy, context.services.ledger, only=context.order.only)

    def due(self, facts: Facts) -> bool:
        """Whether there are dead jobs, or the dead set moved."""
        now: QueueState = facts.now
        return facts.rest is None or bool(now.dead) or now.unrecorded or not same_life(facts.rest, now)

    def limits(self, ledger: Ledger, queues: Sequence[str]) -> list[tuple[str, int]]:
        """The plans' lists that bound the next trims of these queues, each with its revision."""
        with ledger.read() as connection:
            return bounds.of_many(connection, sorted(queues))

    def settle_idle(self, ledger: Ledger, limits: list[tuple[str, int]], idle: Sequence[str]) -> set[str]:
        """A list bounds the first trim after an apply, also one that has nothing to do; on a held queue that is yet to
        come."""
        going = set(idle)
        listed = [one for one in limits if one[0] in going]
        if not listed:
            return set()
        held = {hold.queue for hold in holds.all_holds(ledger)}
        with ledger.write() as connection:
            bounds.consume_plan_limits(connection, [one for one in listed if one[0] not in held])
        return {queue for queue, _ in listed if queue in held}


def plan_victims(
    ledger: Ledger, queue: str, policy: DeadPolicy, now_ms: int, only: Collection[str] | None = None
) -> list[Victim]:
    """Whom the policy lets go, oldest first, by what the ledger knows of the dead set. Changes nothing."""
    by_mint = policy.age_by == "minted"
    oldest = None if policy.max_age_ms is None else now_ms - policy.max_age_ms
    with ledger.read() as connection:
        found = find_victims(
            connection,
            queue,
            keep=policy.keep,
            seen_before_ms=oldest,
            minted_before=None if oldest is None else min_id("JOB", oldest),
            by_mint=by_mint,
        )
    return found if only is None else [victim for victim in found if victim.job in only]


@dataclass(slots=True)
class _Trim:
    """One life of a run. `bound`: the list of a plan that bounds it."""

    context: Context
    report: TrimReport
    policy: DeadPolicy
    bound: Bound | None

    @property
    def only(self) -> Collection[str] | None:
        """The ids that bound the run, None where nothing does."""
        asked = self.context.order.only
        if self.bound is None:
            return asked
        return self.bound.ids if asked is None else set(asked) & self.bound.ids

    def plan(self) -> list[Victim]:
        """Whom the policy lets go."""
        context = self.context
        return plan_victims(context.ledger, context.queue, self.policy, context.seen.now_ms, self.only)

    def work(self, victims: list[Victim] | None) -> None:
        """Removes the victims; None: the ledger does not know the dead set yet."""
        context, report, seen = self.context, self.report, self.context.seen
        whole = victims is not None
        if victims is None:
            whole = self._bring_in_line()
            # By halves known, the oldest can't be told.
            victims = self.plan() if whole else []
            report.more = not whole
        before = self._removed_before()
        if not context.life:
            report.dead_before = seen.dead
        report.victims = before + len(victims)
        name_some(report.victim_jobs, [victim.job for victim in victims])
        most = self.policy.max_removals
        removal = Removal(context, report, self.policy)
        if most is not None and before + len(victims) > most:
            self._stop(before + len(victims), most)
            victims = []
        elif victims:
            with context.ledger.write() as connection:
                note(connection, self._listing(victims))
            removal.remove(victims)
        self._close(removal, victims, whole=whole)
        if self.bound is not None and not report.more and report.status == "done":
            self.consume_limit()
            report.bounded_by = self.bound.revision
            report.notes.append(f"bounded by what the plan of revision {report.bounded_by} listed")

    def consume_limit(self) -> None:
        """The list of a plan bounded this trim, and it is over: the next ones are free."""
        if self.bound is None:
            return
        with self.context.ledger.write() as connection:
            bounds.consume_plan_limit(connection, self.bound)

    def _removed_before(self) -> int:
        """How many went in earlier lives of this run, as the ledger knows by now; they are named too."""
        if not self.context.life:
            return 0
        queue, run, report = self.context.queue, self.context.run, self.report
        with self.context.ledger.read() as connection:
            report.removed = deaths.count_gone(connection, run, queue=queue, how=deaths.TRIMMED)
            report.removed_jobs = deaths.gone_jobs(connection, queue, run, limit=NAMED)
        report.victim_jobs = list(report.removed_jobs)
        return report.removed

    def _bring_in_line(self) -> bool:
        """Whether the ledger knows the whole dead set now."""
        agreement = reconcile(self.context, self.context.seen.now_ms, self.context.budget)
        report = self.report
        report.found_dead += agreement.new
        report.malformed = len(agreement.malformed)
        report.notes += agreement.notes()
        return agreement.whole

    def _listing(self, victims: Sequence[Victim]) -> Listing:
        by_mint = self.policy.age_by == "minted"
        return up_to(self.context.queue, self.context.run, victims[-1], by_mint=by_mint)

    def _stop(self, victims: int, most: int) -> None:
        report = self.report
        report.status, report.stopped_by = "stopped", "max_removals"
        nothing = "no more" if report.removed else "nothing"
        text = f"{victims} jobs would be removed, more than the {most} allowed in one pass: {nothing} was removed"
        report.notes.append(text)
        self.context.alert("removals_stopped", text, self.context.seen.now_ms, {"victims": victims, "allowed": most})

    def _close(self, removal: Removal, victims: Sequence[Victim], *, whole: bool) -> None:
        context, report, seen, done = self.context, self.report, self.context.seen, victims[: removal.done]
        after = observe(context.server, context.queue)
        report.left = after.dead
        values: dict[str, int] = {"seen_ms": after.now_ms, "completed": after.completed, "failed": after.failed}
        # A victim that was no longer dead means that others are at work: then the next pass looks again.
        quiet = (after.dead, after.failed) == (seen.dead - removal.removed, seen.failed) and not report.survived
        values |= {"agreed_dead": after.dead, "agreed_failed": after.failed} if whole and quiet else {"agreed_dead": -1}
        with context.ledger.write() as connection:
            if done:
                removed = [victim.job for victim in done if victim.job not in removal.stay]
                gaps = self.only is not None
                close_trimmed(connection, self._listing(done), removed, removal.stay, after.now_ms, gaps=gaps)
            interruptions.update_contact(connection, context.queue, (after.run_id, after.replid), **values)
            context.end(connection)

"""Modules that act on selected dead jobs: requeue, remove."""

from __future__ import annotations

from typing import Any, ClassVar

from emq_ops.ledger import acts, runs
from emq_ops.ledger.runs import Run
from emq_ops.passes.acts.act import act, resume
from emq_ops.passes.acts.options import ActOptions
from emq_ops.passes.acts.report import WHY_LEFT, ActReport, preview
from emq_ops.passes.acts.targets import Targets, note_flow_parents
from emq_ops.playbook.context import TaskContext
from emq_ops.playbook.decisions import CHANGE, SAME, Decision, Result
from emq_ops.playbook.errors import TaskFailure
from emq_ops.playbook.foretold import DEAD, PENDING
from emq_ops.playbook.modules.dead import AT_RATE, FILTERS, LIMIT, NAMED, NAMES, selected
from emq_ops.playbook.options import TRUE, Option
from emq_ops.playbook.registry import Module

_ALL = Option("all", TRUE, "every dead job; the filters exclude it")


class _Act(Module):
    """What requeue and remove share: a selection, an act that the ledger keeps."""

    exclusive = tuple(("all", name) for name in NAMES)
    needs_one = (*NAMES, "all")
    check = "would change (how many, which), or would not; exact for the dead set at that moment"
    kind: ClassVar[str]
    after: ClassVar[str | None]

    def inspect(self, ctx: TaskContext, options: dict[str, Any]) -> Decision:
        """Which jobs it would touch."""
        targets = Targets(ctx.queue.name)
        for job in selected(ctx, options):
            targets.add(job)
        blocked = self._blocked(ctx, targets)
        targets.jobs = [target for target in targets.jobs if target[0] not in blocked]
        ids = targets.ids
        left = len(blocked) + targets.damaged
        returns = {"ids": ids, "last_attempt": targets.last_attempt, "left": left, "run": None}
        message = "; ".join(preview(self.kind, targets).notes)
        removals = len(ids) if self.destructive else 0
        diff: list[tuple[str, Any, Any]] = [(job, "dead", self.after) for job in ids[:NAMED]]
        data = {"jobs": [list(job) for job in targets.jobs]}
        return Decision(CHANGE if ids else SAME, len(ids), ids, removals, False, message, diff, data, returns)

    def _blocked(self, ctx: TaskContext, targets: Targets) -> dict[str, str]:
        """Those that a removal would leave alone: held jobs, flow parents with open children."""
        if not self.destructive:
            return {}
        note_flow_parents(ctx.queue.server, targets)
        return targets.blocked

    def act(self, ctx: TaskContext, options: dict[str, Any], plan: Decision, resumed: bool) -> Result:
        """Acts on exactly those jobs that are still as they were; an act that was interrupted is taken up again."""
        with ctx.telling(lambda: self._so_far(ctx)):
            report = self._resumed(ctx, options) if resumed else None
            if report is None:
                report = self._fresh(ctx, options, plan)
            if report.more:
                raise TaskFailure("the time ran out with work left", where=ctx.queue.name, fix="play --resume")
        left = {reason: n for reason, n in report.left.items() if n}
        returns = {**plan.returns, "left": plan.returns["left"] + sum(left.values()), "run": report.run}
        notes = [*report.notes, *(f"{n} left: {WHY_LEFT.get(reason, reason)}" for reason, n in left.items())]
        gone = {skipped.job for skipped in report.left_jobs}
        ids = [job for job in plan.items if job not in gone]
        return Result(report.done > 0, report.done, ids, "; ".join(notes), returns | {"ids": ids})

    def _so_far(self, ctx: TaskContext) -> Result:
        """What the act of this step did before it ended early."""
        count = sum(run.counts.get(acts.DONE, 0) for run in self._ours(ctx))
        return Result(count > 0, count)

    def _fresh(self, ctx: TaskContext, options: dict[str, Any], plan: Decision) -> ActReport:
        targets = Targets(ctx.queue.name, [(job, attempts, stalls) for job, attempts, stalls in plan.data["jobs"]])
        targets.last_attempt = plan.returns["last_attempt"]
        return act(ctx.ops.server, self.kind, targets, ctx.ops.ledger, self._acting(ctx, options))

    def _acting(self, ctx: TaskContext, options: dict[str, Any]) -> ActOptions:
        return ActOptions(
            options["rate"],
            why=f"playbook {ctx.run}",
            filters=self._filters(ctx),
            protect=ctx.policy.protect,
            trigger="playbook",
            sleep=ctx.sleep,
        )

    def _resumed(self, ctx: TaskContext, options: dict[str, Any]) -> ActReport | None:
        """The act that this step began in an earlier life, brought to its end; None where it began none."""
        for run in self._ours(ctx):
            if run.status in (runs.RUNNING, runs.INTERRUPTED) and run.slices:
                return resume(ctx.ops.server, run.id, ctx.ops.ledger, self._acting(ctx, options))
            if run.status == runs.DONE:
                done = run.counts.get(acts.DONE, 0)
                report = ActReport(run.queue, run=run.id, kind=self.kind, selected=run.counts["selected"], done=done)
                report.left = {k: v for k, v in run.counts.items() if k not in ("selected", acts.DONE)}
                return report
        return None

    @staticmethod
    def _filters(ctx: TaskContext) -> dict[str, str]:
        return {"play": ctx.run, "step": ctx.step}

    def _ours(self, ctx: TaskContext) -> list[Run]:
        """The acts of this very step, newest first."""
        found = runs.latest(ctx.ops.ledger, queue=ctx.queue.name, kind=self.kind)
        return [run for run in found if run.policy.get("selection") == self._filters(ctx)]


class Requeue(_Act):
    """Dead jobs wait again."""

    name = "requeue"
    reads = frozenset({DEAD})
    moves = frozenset({DEAD, PENDING})
    summary = (
        "Puts dead jobs back to wait, in their lane where they had one. Attempts stay, the stall count is cleared."
    )
    options = (*FILTERS, _ALL, LIMIT, AT_RATE)
    returns: ClassVar = {
        "ids": "the jobs",
        "last_attempt": "how many died of an error: their next error kills them again",
        "left": "how many were left alone",
        "run": "the act's run, for `emq-ops runs show`; none where nothing was done",
    }
    kind, after = acts.REQUEUE, "pending"


class Remove(_Act):
    """Dead jobs go."""

    name = "remove"
    reads = frozenset({DEAD})
    moves = frozenset({DEAD})
    summary = "Removes dead jobs, whole; `emq-ops undo` brings them back."
    destructive = True
    options = (*FILTERS, _ALL, LIMIT, AT_RATE)
    returns: ClassVar = {
        "ids": "the jobs",
        "left": "how many were left alone (held, flow parents ...)",
        "run": "the act's run, for `emq-ops undo`; none where nothing was done",
        "last_attempt": "how many died of an error",
    }
    kind, after = acts.REMOVE, None

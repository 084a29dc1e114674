"""Modules that act on selected dead jobs: requeue, remove."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from emq_ops.ledger import acts as book
from emq_ops.ledger import runs
from emq_ops.ledger.runs import Run
from emq_ops.passes import acts
from emq_ops.passes.acts import ActReport, Chosen
from emq_ops.passes.deadset import DeadJob
from emq_ops.playbook.context import Context, Stopped
from emq_ops.playbook.modules.dead import FILTERS, LIMIT, NAMED, NAMES, RATE, selected
from emq_ops.playbook.options import TRUE, Option
from emq_ops.playbook.registry import CHANGE, SAME, Module, Plan, Result

_ALL = Option("all", TRUE, "every dead job; the filters exclude it")


class _Act(Module):
    """What requeue and remove share: a selection, an act that the ledger keeps."""

    exclusive = tuple(("all", name) for name in NAMES)
    needs_one = (*NAMES, "all")
    check = "would change (how many, which), or would not; exact for the dead set at that moment"
    kind: ClassVar[str]
    after: ClassVar[str | None]

    def inspect(self, ctx: Context, options: dict[str, Any]) -> Plan:
        """Which jobs it would touch."""
        chosen = Chosen(ctx.queue.name)
        blocked = 0
        found = list(selected(ctx, options))
        for job, leaves in zip(found, self.leaves(ctx, found), strict=True):
            if leaves:
                blocked += 1
            else:
                chosen.add(job)
        ids = [job for job, _, _ in chosen.jobs]
        returns = {"ids": ids, "last_attempt": chosen.last_attempt, "left": blocked + chosen.damaged, "run": None}
        message = "; ".join(acts.preview(self.kind, chosen).notes)
        removals = len(ids) if self.destructive else 0
        diff: list[tuple[str, Any, Any]] = [(job, "dead", self.after) for job in ids[:NAMED]]
        data = {"jobs": [list(job) for job in chosen.jobs]}
        count = len(ids)
        return Plan(CHANGE if ids else SAME, count, ids, removals, False, message, diff, data, returns)

    def leaves(self, ctx: Context, jobs: list[DeadJob]) -> list[bool]:
        """Of each job, whether the act would leave it alone."""
        return [False] * len(jobs)

    def act(self, ctx: Context, options: dict[str, Any], plan: Plan, resumed: bool) -> Result:
        """Acts on exactly those jobs that are still as they were; an act that was interrupted is taken up again."""
        report = self._resumed(ctx, options) if resumed else None
        if report is None:
            report = self._fresh(ctx, options, plan)
        left = {reason: n for reason, n in report.left.items() if n}
        returns = {**plan.returns, "left": plan.returns["left"] + sum(left.values()), "run": report.run}
        notes = [*report.notes, *(f"{n} left: {acts.WHY_LEFT.get(reason, reason)}" for reason, n in left.items())]
        gone = {skipped.job for skipped in report.left_jobs}
        ids = [job for job in plan.items if job not in gone]
        return Result(report.done > 0, report.done, ids, "; ".join(notes), returns | {"ids": ids})

    def _fresh(self, ctx: Context, options: dict[str, Any], plan: Plan) -> ActReport:
        chosen = Chosen(ctx.queue.name, [(job, attempts, stalls) for job, attempts, stalls in plan.data["jobs"]])
        chosen.last_attempt = plan.returns["last_attempt"]
        with self._interruptible(ctx):
            return acts.act(
                ctx.ops.server,
                self.kind,
                chosen,
                ctx.ops.ledger,
                why=f"playbook {ctx.run}",
                meant=self._meant(ctx),
                rate=options["rate"],
                protect=ctx.policy.protect,
                trigger="playbook",
                sleep=ctx.sleep,
            )

    def _resumed(self, ctx: Context, options: dict[str, Any]) -> ActReport | None:
        """The act that this step began in an earlier life, brought to its end; None where it began none."""
        for run in self._ours(ctx):
            if run.status in (runs.RUNNING, runs.INTERRUPTED) and run.slices:
                with self._interruptible(ctx):
                    return acts.resume(
                        ctx.ops.server,
                        run.id,
                        ctx.ops.ledger,
                        rate=options["rate"],
                        protect=ctx.policy.protect,
                        sleep=ctx.sleep,
                    )
            if run.status == runs.DONE:
                done = run.counts.get(book.DONE, 0)
                report = ActReport(self.kind, run.queue, run.id, selected=run.counts["selected"], done=done)
                report.left = {k: v for k, v in run.counts.items() if k not in ("selected", book.DONE)}
                return report
        return None

    @staticmethod
    def _meant(ctx: Context) -> dict[str, str]:
        return {"play": ctx.run, "step": ctx.step}

    def _ours(self, ctx: Context) -> list[Run]:
        """The acts of this very step, newest first."""
        found = runs.latest(ctx.ops.ledger, queue=ctx.queue.name, kind=self.kind)
        return [run for run in found if run.policy.get("selection") == self._meant(ctx)]

    @contextmanager
    def _interruptible(self, ctx: Context) -> Iterator[None]:
        """An act that ends because the run is to end is marked so, and this very process may take it up again."""
        try:
            yield
        except Stopped:
            for run in self._ours(ctx):
                if run.status == runs.RUNNING:
                    with ctx.ops.ledger.write() as connection:
                        runs.finish(connection, run.id, runs.INTERRUPTED, error="interrupted")
            raise


class Requeue(_Act):
    """Dead jobs wait again."""

    name = "requeue"
    summary = (
        "Puts dead jobs back to wait, in their lane where they had one. Attempts stay, the stall count is cleared."
    )
    options = (*FILTERS, _ALL, LIMIT, RATE)
    returns: ClassVar = {
        "ids": "the jobs",
        "last_attempt": "how many died of an error: their next error kills them again",
        "left": "how many were left alone",
        "run": "the act's run, for `emq-ops runs show`; none where nothing was done",
    }
    kind, after = book.REQUEUE, "pending"


class Remove(_Act):
    """Dead jobs go."""

    name = "remove"
    summary = "Removes dead jobs, whole; `emq-ops undo` brings them back."
    destructive = True
    options = (*FILTERS, _ALL, LIMIT, RATE)
    returns: ClassVar = {
        "ids": "the jobs",
        "left": "how many were left alone (held, flow children ...)",
        "run": "the act's run, for `emq-ops undo`; none where nothing was done",
        "last_attempt": "how many died of an error",
    }
    kind, after = book.REMOVE, None

    def leaves(self, ctx: Context, jobs: list[DeadJob]) -> list[bool]:
        """Held jobs, flow children, whose parents would wait for ever, and flow parents with open children."""
        keys = [ctx.queue.keys.book(job.job, "dependencies") for job in jobs]
        left = ctx.queue.server.read_many([("GET", key) for key in keys])
        return [
            job.held or job.parent or (open_children or b"0") != b"0"
            for job, open_children in zip(jobs, left, strict=True)
        ]

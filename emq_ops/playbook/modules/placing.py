"""Modules that put jobs elsewhere: delay_jobs."""

from __future__ import annotations

from typing import Any, ClassVar

from emq_ops.playbook.context import TaskContext
from emq_ops.playbook.decisions import CHANGE, SAME, Decision, Result
from emq_ops.playbook.foretold import ACTIVE, SCHEDULED
from emq_ops.playbook.options import JOBS, REQUIRED, SPAN, Option
from emq_ops.playbook.registry import Module
from emq_ops.protocol.errors import StaleTokenError, StateError
from emq_ops.protocol.transitions.settle import delay_in

NAMED = 1000
SLICE = 500


class DelayJobs(Module):
    """Jobs in hand go back to the schedule."""

    name = "delay_jobs"
    reads = frozenset({ACTIVE, SCHEDULED})
    moves = frozenset({ACTIVE, SCHEDULED})
    summary = "Puts jobs in hand back on the schedule, without an attempt. A worker that goes on settles them even so."
    check = "would change (which), or would not; exact for what is in hand at that moment"
    options = (
        Option("ids", JOBS, "the jobs", REQUIRED, empty_is_error=True),
        Option("for", SPAN, "so long from now", REQUIRED),
    )
    returns: ClassVar = {"ids": "the jobs that were delayed", "left": "jobs that were not in hand, or are no longer"}

    def inspect(self, ctx: TaskContext, options: dict[str, Any]) -> Decision:
        """Which are in hand, under which token."""
        q, ids = ctx.queue, sorted(options["ids"])
        scores = q.server.read_many([("ZSCORE", q.keys.active, job) for job in ids])
        rows = q.server.read_many([("HGET", q.keys.row(job), "attempts") for job in ids])
        held = [
            [job, int(token)]
            for job, score, token in zip(ids, scores, rows, strict=True)
            if score is not None and token is not None and token.isdigit()
        ]
        found = [job for job, _ in held]
        left = [job for job in ids if job not in found]
        diff: list[tuple[str, Any, Any]] = [(job, "in hand", f"{options['for']} ms from now") for job in found]
        returns = {"ids": found, "left": left}
        verdict = CHANGE if found else SAME
        return Decision(verdict, len(found), found, diff=diff[:NAMED], data={"held": held}, returns=returns)

    def act(self, ctx: TaskContext, options: dict[str, Any], plan: Decision, resumed: bool) -> Result:
        """Delays each under its token; one that was settled or claimed anew since is left."""
        done: list[str] = []
        left = list(plan.returns["left"])
        for number, (job, token) in enumerate(plan.data["held"]):
            try:
                delay_in(ctx.queue, job, token, options["for"])
                done.append(job)
            except (StaleTokenError, StateError):
                left.append(job)
            if number % SLICE == SLICE - 1:
                ctx.go_on()
        return Result(bool(done), len(done), done, returns={"ids": done, "left": left})

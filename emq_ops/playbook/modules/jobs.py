"""Modules about jobs in flight or waiting: cancel, extend."""

from __future__ import annotations

from typing import Any, ClassVar

from emq_ops.playbook.context import TaskContext
from emq_ops.playbook.decisions import CHANGE, SAME, UNKNOWN, Decision, Result
from emq_ops.playbook.errors import TaskFailure
from emq_ops.playbook.foretold import ACTIVE, PENDING, SCHEDULED
from emq_ops.playbook.options import DURATION, JOBS, REQUIRED, SPAN, TEXT, Option
from emq_ops.playbook.registry import Module
from emq_ops.protocol.errors import EmqError, StaleTokenError
from emq_ops.protocol.scores import score_ms
from emq_ops.protocol.transitions.cancel import CancelAnswer, request
from emq_ops.protocol.transitions.leases import Extended

NAMED = 1000
SLICE = 500


class Cancel(Module):
    """Asks for cancellation."""

    name = "cancel"
    reads = frozenset({PENDING, SCHEDULED, ACTIVE})
    moves = frozenset({PENDING, SCHEDULED})
    summary = "Asks for jobs' cancellation: a waiting job is removed, a worker that holds one is told and may stop."
    check = "would change (which are removed), or would not; cannot know what a worker does that is told"
    destructive = True
    options = (
        Option("ids", JOBS, "the jobs", REQUIRED, empty_is_error=True),
        Option("reason", TEXT, "told to the worker", "cancelled"),
    )
    returns: ClassVar = {
        "removed": "ids that waited and are gone",
        "signalled": "ids whose worker was told",
        "gone": "ids that are not there",
        "locked": "ids that wait, and that a worker holds all the same",
        "not_cancellable": "ids that are dead, or wait for their flow children",
    }

    def inspect(self, ctx: TaskContext, options: dict[str, Any]) -> Decision:
        """In which state each is."""
        ids = sorted(options["ids"])
        rows = ctx.queue.server.read_many(
            [("HMGET", ctx.queue.keys.row(job), "state", "parent", "lock") for job in ids]
        )
        locks = ctx.queue.server.read_many([("EXISTS", ctx.queue.keys.book(job, "lock")) for job in ids])
        out: dict[str, list[str]] = {name: [] for name in self.returns}
        diff: list[tuple[str, Any, Any]] = []
        for job, (state, parent, held), lock in zip(ids, rows, locks, strict=True):
            word = (state or b"").decode("utf-8", "replace")
            if word in ("pending", "scheduled") and (held is not None or lock):
                out["locked"].append(job)
            elif word in ("pending", "scheduled"):
                if parent is not None:
                    raise TaskFailure(
                        f"{job} has a flow parent, which would wait for it for ever", where=ctx.queue.name
                    )
                out["removed"].append(job)
                diff.append((job, word, None))
            else:
                kind = "signalled" if word == "active" else "not_cancellable" if state else "gone"
                out[kind].append(job)
        removed = out["removed"]
        verdict = CHANGE if removed else UNKNOWN if out["signalled"] else SAME
        message = f"{len(out['signalled'])} workers are told; whether they stop is theirs" if out["signalled"] else ""
        plan = Decision(verdict, len(removed), removed, len(removed), message=message, diff=diff, returns=dict(out))
        plan.data = {"ids": ids}
        return plan

    def act(self, ctx: TaskContext, options: dict[str, Any], plan: Decision, resumed: bool) -> Result:
        """Asks for each."""
        out: dict[str, list[str]] = {name: [] for name in self.returns}
        names = {CancelAnswer.NOT_CANCELLABLE: "not_cancellable"}
        planned = set(plan.items)
        removed = out["removed"]
        with ctx.telling(lambda: Result(bool(removed), len(removed), removed, returns=dict(out))):
            for number, job in enumerate(plan.data["ids"]):
                answer = request(ctx.queue, job, options["reason"])
                if answer is CancelAnswer.GONE and resumed and job in planned:
                    answer = CancelAnswer.REMOVED  # by the try that was interrupted
                out[names.get(answer, answer.value)].append(job)
                if number % SLICE == SLICE - 1:
                    ctx.go_on()
        message = f"{len(out['signalled'])} workers were told" if out["signalled"] else ""
        return Result(bool(removed), len(removed), removed, message, dict(out))


class Extend(Module):
    """Extends leases."""

    name = "extend"
    reads = frozenset({ACTIVE})
    summary = "Extends the leases of active jobs that would lapse soon, such as before a restart."
    check = "would change (which), or would not; exact for the leases at that moment"
    options = (
        Option("lease", SPAN, "extended to so long from now", REQUIRED),
        Option("when_below", DURATION, "only leases with less than this left; half of `lease` without it"),
        Option("ids", JOBS, "only these jobs", empty_is_error=True),
    )
    returns: ClassVar = {"ids": "the jobs whose leases were extended", "lost": "jobs that were claimed anew or ended"}

    def inspect(self, ctx: TaskContext, options: dict[str, Any]) -> Decision:
        """Which leases would lapse soon."""
        lease, below = options["lease"], options["when_below"]
        if lease < 1:
            raise TaskFailure("a lease of no time", fix="give lease a length")
        q = ctx.queue
        edge = q.server.now_ms(q.name) + (lease // 2 if below is None else min(below, lease))
        flat = q.server.read("ZRANGEBYSCORE", q.keys.active, "-inf", f"({edge}", "WITHSCORES")
        only = set(options["ids"]) if options["ids"] else None
        found = {job.decode("ascii", "replace"): score_ms(at) for job, at in zip(flat[::2], flat[1::2], strict=True)}
        wanted = [job for job in found if only is None or job in only]
        rows = q.server.read_many([("HGET", q.keys.row_of_member(job), "attempts") for job in wanted])
        held = [[j, int(token)] for j, token in zip(wanted, rows, strict=True) if token is not None and token.isdigit()]
        ids = [job for job, _ in held]
        diff: list[tuple[str, Any, Any]] = [(job, f"lease until {found[job]}", f"{lease} ms from now") for job in ids]
        returns = {"ids": ids, "lost": []}
        return Decision(CHANGE if ids else SAME, len(ids), ids, diff=diff[:NAMED], data={"held": held}, returns=returns)

    def act(self, ctx: TaskContext, options: dict[str, Any], plan: Decision, resumed: bool) -> Result:
        """Extends each under its token; a job that was settled or claimed anew since is left alone."""
        q, held = ctx.queue, plan.data["held"]
        done: list[str] = []
        lost: list[str] = []

        def result() -> Result:
            return Result(bool(done), len(done), done, returns={"ids": done, "lost": lost})

        with ctx.telling(result):
            for first in range(0, len(held), SLICE):
                some = held[first : first + SLICE]
                calls = [([q.keys.active, q.keys.row(job)], [job, token, options["lease"]]) for job, token in some]
                for (job, _), reply in zip(some, q.run_many("extend", calls), strict=True):
                    if isinstance(reply, EmqError) and not isinstance(reply, StaleTokenError):
                        raise reply
                    (done if reply == Extended.DONE else lost).append(job)
                ctx.go_on()
        return result()

"""Modules that put jobs back to wait: sweep, reap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from emq_ops.ledger import interruptions
from emq_ops.passes.sweep.declared import SWEEP
from emq_ops.playbook.context import TaskContext
from emq_ops.playbook.decisions import CHANGE, SAME, Decision, Result
from emq_ops.playbook.foretold import ACTIVE, DEAD, PENDING, WINDOWS
from emq_ops.playbook.modules.facts import look
from emq_ops.playbook.modules.passing import NAMED, carry_out, foretell, order_of, with_options
from emq_ops.playbook.options import COUNT, GROUP, POSITIVE, SPAN, TEXT, Option
from emq_ops.playbook.registry import Module
from emq_ops.policy.models import MAX_SLICE, StalledPolicy
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.transitions import recover
from emq_ops.protocol.transitions.reads import is_there


class Sweep(Module):
    """The stalled sweep."""

    name = "sweep"
    reads = frozenset({ACTIVE, WINDOWS})
    moves = frozenset({ACTIVE, PENDING, DEAD})
    adds = ("recovered", "exempted", "dead", "ghosts")
    summary = (
        "Recovers lapsed leases, and dead-letters jobs that stalled too often: the sweep pass, by the config's policy."
    )
    check = "would change (who is recovered, who dies), or would not; exact for the leases lapsed at that moment"
    options = (
        Option("max_stalled", POSITIVE, "the stall that dead-letters"),
        Option("limit", POSITIVE, "leases a slice"),
        Option("restart", TEXT, "leases of an interruption", choices=("exempt", "count")),
        Option("lease", SPAN, "the queue's longest lease"),
        Option("max_exempt", COUNT, "exemptions in a row of one job"),
        Option("max_removals", COUNT, "stop if more would die"),
    )
    returns: ClassVar = {
        "active": "jobs in flight afterwards",
        "recovered": "how many went back to wait",
        "exempted": "how many of them uncounted",
        "dead": "how many died",
        "ghosts": "ids without a row that were removed",
        "recovered_ids": "the first 1,000 of them",
        "dead_ids": "the first 1,000 of them",
    }
    _fields: ClassVar = {
        "max_stalled": "max_stalled",
        "limit": "limit",
        "restart": "restart",
        "lease": "lease_ms",
        "max_exempt": "max_exempt",
        "max_removals": "max_removals",
    }

    def inspect(self, ctx: TaskContext, options: dict[str, Any]) -> Decision:
        """What the pass would do now."""
        policy = with_options(ctx.policy.stalled, options, self._fields)
        if not is_there(ctx.queue) and not interruptions.knows(ctx.ops.ledger, ctx.queue.name):
            return Decision(returns=self._returns({}) | {"active": 0})
        report = foretell(ctx, SWEEP, order_of(ctx, policy)).report
        row = report.as_row()
        count = report.recovered + report.dead + report.ghosts
        diff = _moves(report.recovered_jobs, report.dead_jobs)
        items = [*report.recovered_jobs, *report.dead_jobs]
        returns = self._returns(row) | {"active": look(ctx.queue)["active"] - count}
        plan = Decision(CHANGE if count else SAME, count, items, diff=diff, returns=returns, duty=True)
        plan.message = _said(row)
        return plan

    def act(self, ctx: TaskContext, options: dict[str, Any], plan: Decision, resumed: bool) -> Result:
        """Runs the pass under the queue's lease, or through a live daemon."""
        policy: StalledPolicy = with_options(ctx.policy.stalled, options, self._fields)
        order = order_of(ctx, policy, lease_ms=policy.lease_ms)
        report = carry_out(ctx, SWEEP, order, ("recovered", "dead", "ghosts"))
        count = int(report["recovered"] + report["dead"] + report["ghosts"])
        if resumed and count < plan.count:
            # The rest was done before the interruption, and stands in the ledger.
            returns = plan.returns | {"active": look(ctx.queue)["active"]}
            return Result(plan.verdict == CHANGE, plan.count, plan.items, plan.message, returns)
        items = [*report["recovered_jobs"], *report["dead_jobs"]]
        returns = self._returns(report) | {"active": look(ctx.queue)["active"]}
        diff = _moves(report["recovered_jobs"], report["dead_jobs"])
        return Result(count > 0, count, items, _said(report), returns, diff=diff)

    @staticmethod
    def _returns(row: dict[str, Any]) -> dict[str, Any]:
        out: dict[str, Any] = {name: row.get(name, 0) for name in ("recovered", "exempted", "dead", "ghosts")}
        return {**out, "recovered_ids": row.get("recovered_jobs", []), "dead_ids": row.get("dead_jobs", [])}


def _moves(recovered: Sequence[str], dead: Sequence[str]) -> list[tuple[str, Any, Any]]:
    """Where a sweep puts jobs."""
    return [*((job, "active", "pending") for job in recovered), *((job, "active", "dead") for job in dead)]


def _said(row: dict[str, Any]) -> str:
    """A sweep in a few words."""
    uncounted = f", {row['exempted']} of them uncounted" if row["exempted"] else ""
    parts = [f"{row['recovered']} recovered{uncounted}"] if row["recovered"] else []
    parts += [f"{row[name]} {word}" for name, word in (("dead", "died"), ("ghosts", "without a row")) if row[name]]
    return "; ".join([", ".join(parts) or "no lease lapsed", *row["notes"]])


class Reap(Module):
    """Lapsed leases go back to wait."""

    name = "reap"
    reads = frozenset({ACTIVE})
    moves = frozenset({ACTIVE, PENDING})
    summary = "Puts jobs with lapsed leases back to wait, uncounted."
    check = "would change (how many, the first of which), or would not; exact for what is due at that moment"
    options = (
        Option("lane", GROUP, "only this lane's jobs"),
        Option("limit", POSITIVE, "at most so many; without it all that are due"),
    )
    returns: ClassVar = {"ids": "the first 1,000 of them"}

    @staticmethod
    def _due(q: Queue, options: dict[str, Any]) -> tuple[int, list[str]]:
        """How many are due now, and which: all of them under a limit, else the first."""
        key, now, limit = q.keys.active, q.server.now_ms(q.name), options["limit"]
        if options["lane"] is None:
            count, ids = q.server.read_many(
                [("ZCOUNT", key, "-inf", now), ("ZRANGEBYSCORE", key, "-inf", now, "LIMIT", 0, limit or NAMED)]
            )
            return min(int(count), limit or int(count)), [i.decode("utf-8", "replace") for i in ids]
        lapsed = q.server.read("ZRANGEBYSCORE", key, "-inf", now)
        groups = q.server.read_many([("HGET", q.keys.row_of_member(i.decode()), "group") for i in lapsed])
        own = [i.decode() for i, g in zip(lapsed, groups, strict=True) if g == options["lane"].encode()]
        own = own[:limit] if limit else own
        return len(own), own if limit else own[:NAMED]

    def inspect(self, ctx: TaskContext, options: dict[str, Any]) -> Decision:
        """What is due."""
        count, ids = self._due(ctx.queue, options)
        diff: list[tuple[str, Any, Any]] = [(job, "active", "pending") for job in ids[:NAMED]]
        return Decision(CHANGE if count else SAME, count, ids, diff=diff, returns={"ids": ids[:NAMED]})

    def act(self, ctx: TaskContext, options: dict[str, Any], plan: Decision, resumed: bool) -> Result:
        """Moves what is due, up to the limit."""
        q, lane, left = ctx.queue, options["lane"], options["limit"]
        if resumed and left is not None:
            # A limit that an earlier try used up, wholly or in part.
            scores = q.server.read_many([("ZSCORE", q.keys.active, job) for job in plan.items])
            left = sum(score is not None for score in scores)
        moved = 0
        with ctx.telling(lambda: Result(moved > 0, moved)):
            while left is None or moved < left:
                slice_size = min(MAX_SLICE, 1000, left - moved if left is not None else 1000)
                some = recover.reap_lane(q, lane, slice_size) if lane else recover.reap(q, slice_size)
                moved += some
                if some < slice_size:
                    break
                ctx.go_on()
        moved = max(moved, plan.count) if resumed else moved
        return Result(moved > 0, moved, plan.items, returns=plan.returns)

"""Modules that archive: trim_dead, archive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from emq_ops.passes.archive.declared import ARCHIVE
from emq_ops.passes.frame.order import Order
from emq_ops.passes.trim.declared import TRIM
from emq_ops.playbook.context import TaskContext
from emq_ops.playbook.decisions import CHANGE, SAME, Decision, Result
from emq_ops.playbook.foretold import DEAD, RECORDS
from emq_ops.playbook.modules.passing import NAMED, carry_out, foretell, order_of, with_options
from emq_ops.playbook.options import BOOLEAN, COUNT, DURATION, JOBS, TEXT, TEXTS, Option
from emq_ops.playbook.registry import Module
from emq_ops.policy.models import DeadPolicy, StreamPolicy


class TrimDead(Module):
    """The dead trim."""

    name = "trim_dead"
    reads = frozenset({DEAD})
    moves = frozenset({DEAD, RECORDS})
    adds = ("removed", "archived")
    summary = "Archives and deletes dead jobs beyond what may stay: the trim pass, by the config's policy."
    check = "would change (who goes), or would not; exact for the dead set at that moment"
    destructive = True
    options = (
        Option("keep", COUNT, "exactly so many stay; with max_age it replaces the config's bounds"),
        Option("max_age", DURATION, "older ones go"),
        Option("age_by", TEXT, "what age is", choices=("seen", "minted")),
        Option("archive", BOOLEAN, "into the archive first"),
        Option("ids", JOBS, "of those that would go, only these", empty_is_error=True),
    )
    returns: ClassVar = {
        "removed": "how many are gone",
        "archived": "how many records are new in the archive",
        "left": "how many stay dead",
        "stayed": "how many had to stay (held, flow parents ...)",
        "removed_ids": "the first 1,000 of those that are gone",
    }

    def _policy(self, ctx: TaskContext, options: dict[str, Any]) -> DeadPolicy:
        bounds = ctx.policy.dead
        if options["keep"] is not None or options["max_age"] is not None:
            bounds = replace(bounds, keep=options["keep"], max_age_ms=options["max_age"])
        policy: DeadPolicy = with_options(bounds, options, {"age_by": "age_by", "archive": "archive"})
        return policy

    def inspect(self, ctx: TaskContext, options: dict[str, Any]) -> Decision:
        """Whom the policy lets go."""
        policy = self._policy(ctx, options)
        only = set(options["ids"]) if options["ids"] else None
        found = foretell(ctx, TRIM, order_of(ctx, policy, only=only))
        ids = list(found.jobs)
        returns = self._returns(found.report.as_row()) | {"removed": len(ids), "removed_ids": ids[:NAMED]}
        diff: list[tuple[str, Any, Any]] = [(job, "dead", None) for job in ids[:NAMED]]
        count = len(ids)
        plan = Decision(
            CHANGE if ids else SAME, count, ids[:NAMED], count, diff=diff, data={"ids": ids}, returns=returns
        )
        plan.message = self._said(returns, found.report.notes)
        return plan

    def act(self, ctx: TaskContext, options: dict[str, Any], plan: Decision, resumed: bool) -> Result:
        """Runs the pass on exactly those that were listed."""
        only = plan.data["ids"]
        report = carry_out(ctx, TRIM, order_of(ctx, self._policy(ctx, options), only=only), ["removed"])
        if resumed:
            stayed = ctx.queue.server.read_many([("ZSCORE", ctx.queue.keys.dead, job) for job in only])
            gone = [job for job, score in zip(only, stayed, strict=True) if score is None]
            report |= {"removed": len(gone), "removed_jobs": gone[:NAMED]}
        removed, returns = int(report["removed"]), self._returns(report)
        return Result(removed > 0, removed, report["removed_jobs"], self._said(returns, report["notes"]), returns)

    @staticmethod
    def _said(returns: dict[str, Any], notes: Sequence[str]) -> str:
        stayed = f", {returns['stayed']} had to stay" if returns["stayed"] else ""
        return "; ".join([f"{returns['removed']} removed, {returns['left']} left{stayed}", *notes])

    @staticmethod
    def _returns(row: dict[str, Any]) -> dict[str, Any]:
        named = {"removed": "removed", "archived": "archived", "left": "left", "stayed": "skipped_count"}
        return {n: row[field] for n, field in named.items()} | {"removed_ids": row["removed_jobs"]}


class ArchiveStreams(Module):
    """The stream archive."""

    name = "archive"
    reads = frozenset({RECORDS})
    moves = frozenset({RECORDS})
    summary = "Archives event streams up to their top, and trims what the policy lets go: the archive pass."
    check = "would change (how many records would be folded and trimmed), or would not; exact while nobody appends"
    options = (
        Option("stream", TEXTS, "the streams; without it those that the config archives", empty_is_error=True),
        Option("keep", COUNT, "exactly so many records stay; with max_age it replaces the config's bounds"),
        Option("max_age", DURATION, "older records leave the server"),
    )
    returns: ClassVar = {
        "folded": "records newly in the archive",
        "shipped": "records newly in the object store",
        "trimmed": "records that left the server",
        "lag_records": "records on the server that are not archived yet",
        "refused": "why records that the policy lets go had to stay, such as a consumer group that needs them",
        "streams": "the same for each stream, by name",
    }
    adds = ("folded", "shipped", "trimmed")
    _sums = ("folded", "shipped", "trimmed", "lag_records")

    @staticmethod
    def _own_bounds(options: dict[str, Any]) -> bool:
        return options["keep"] is not None or options["max_age"] is not None

    def _order(self, ctx: TaskContext, options: dict[str, Any], name: str, policy: StreamPolicy) -> Order:
        return order_of(ctx, policy, name, applied=not self._own_bounds(options))

    def _policies(self, ctx: TaskContext, options: dict[str, Any]) -> dict[str, StreamPolicy]:
        known = ctx.policy.streams
        names = options["stream"] or list(known)
        out = {}
        for name in names:
            policy = known.get(name, StreamPolicy())
            if self._own_bounds(options):
                policy = replace(policy, keep=options["keep"], max_age_ms=options["max_age"])
            out[name] = policy
        return out

    def inspect(self, ctx: TaskContext, options: dict[str, Any]) -> Decision:
        """What a run would fold, ship and trim."""
        policies = self._policies(ctx, options)
        there = {name: policy for name, policy in policies.items() if self._length(ctx, name)}
        rows: dict[str, dict[str, Any]] = {name: {} for name in policies}
        for name, policy in there.items():
            rows[name] = foretell(ctx, ARCHIVE, self._order(ctx, options, name, policy)).report.as_row()
        returns = self._returns(rows)
        count = returns["folded"] + returns["trimmed"] + returns["shipped"]
        items = [name for name, row in rows.items() if any(row.get(key) for key in self._sums[:3])]
        diff = [self._trimmed(name, self._length(ctx, name), rows[name]["trimmed"]) for name in items]
        message = self._said(returns) if policies else "the config archives no stream of this queue"
        plan = Decision(
            CHANGE if count else SAME, returns["folded"], items, 0, message=message, diff=diff, returns=returns
        )
        plan.data = {"streams": list(there)}
        return plan

    @staticmethod
    def _trimmed(name: str, length: int, trimmed: int) -> tuple[str, Any, Any]:
        return f"stream {name}", f"{length} records", f"{length - trimmed}"

    @staticmethod
    def _length(ctx: TaskContext, name: str) -> int:
        return int(ctx.queue.server.read("XLEN", ctx.queue.keys.stream(name)))

    def act(self, ctx: TaskContext, options: dict[str, Any], plan: Decision, resumed: bool) -> Result:
        """Runs the pass on each stream that has records."""
        policies = self._policies(ctx, options)
        rows: dict[str, dict[str, Any]] = {}
        for name in plan.data["streams"]:
            order = self._order(ctx, options, name, policies[name])
            rows[name] = carry_out(ctx, ARCHIVE, order, self._sums[:3])
            ctx.go_on()
        returns = self._returns(rows)
        odd = [f"{name}: record {bad['id']} stays" for name, row in rows.items() for bad in row["unstorable"]]
        changed = plan.verdict == CHANGE if resumed else any(returns[key] for key in self._sums[:3])
        if resumed:
            returns |= {key: max(returns[key], plan.returns[key]) for key in self._sums[:3]}
        items = plan.items if resumed else [n for n, row in rows.items() if any(row[key] for key in self._sums[:3])]
        trims = {name: int(returns["streams"][name]["trimmed"]) for name in items if name in returns["streams"]}
        diff = [self._trimmed(name, self._length(ctx, name) + count, count) for name, count in trims.items()]
        said = self._said(returns)
        return Result(changed, returns["folded"], items, said, returns, "; ".join(odd) or None, diff)

    @staticmethod
    def _said(returns: dict[str, Any]) -> str:
        done = f"{returns['folded']} folded, {returns['shipped']} shipped, {returns['trimmed']} trimmed"
        return "; ".join([done, *returns["refused"]])

    def _returns(self, rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
        streams = {name: {key: row.get(key, 0) for key in self._sums} for name, row in rows.items()}
        refused = [f"{name}: {text}" for name, row in rows.items() for text in row.get("refused", ())]
        sums = {key: sum(one[key] for one in streams.values()) for key in self._sums}
        return {**sums, "refused": refused, "streams": streams}

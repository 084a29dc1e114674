"""Modules about dead jobs, and how they are selected: audit, rehydrate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, ClassVar

from emq_ops.ledger import deaths
from emq_ops.passes.acts.deadset import DeadJob
from emq_ops.passes.acts.declared import RATE
from emq_ops.passes.acts.options import ActOptions
from emq_ops.passes.acts.selection import CAUSES, DeadSelection, select
from emq_ops.passes.acts.sources import newest_snapshot
from emq_ops.passes.acts.undo import rehydrate_jobs
from emq_ops.playbook.context import TaskContext
from emq_ops.playbook.decisions import CHANGE, SAME, Decision, Result
from emq_ops.playbook.foretold import DEAD, PENDING
from emq_ops.playbook.options import BOOLEAN, COUNT, DURATION, JOBS, POSITIVE, REQUIRED, TEXT, TEXTS, Option
from emq_ops.playbook.registry import Module

NAMED = 1000
GROUPS = 100
MAX_IDS = 100_000
"""Ids that an audit returns; counts are always whole."""

FILTERS = (
    Option("cause", TEXTS, "why they died", choices=CAUSES, empty_is_error=True),
    Option("error", TEXTS, "error groups, texts (numbers don't matter) or patterns with *", empty_is_error=True),
    Option("older_than", DURATION, "first seen dead at least so long ago"),
    Option("newer_than", DURATION, "first seen dead at most so long ago"),
    Option("ids", JOBS, "these jobs", empty_is_error=True),
    Option("payload", TEXT, "a text in the payload", empty_is_error=True),
    Option("interruption", COUNT, "that interruption's, by its number"),
    Option("killed_by", TEXT, "killed by that run", empty_is_error=True),
    Option("suspect", BOOLEAN, "restart suspects: stalled, by a lease that an interruption may have cut"),
)
LIMIT = Option("limit", POSITIVE, "at most so many, by id")
AT_RATE = Option("rate", POSITIVE, "jobs a second", RATE)
NAMES = tuple(option.name for option in FILTERS)


def selection_of(options: dict[str, Any]) -> DeadSelection:
    """The filters as a selection. Raises BadInputError."""
    return DeadSelection(
        causes=tuple(options["cause"] or ()),
        errors=tuple(options["error"] or ()),
        older_ms=options["older_than"],
        newer_ms=options["newer_than"],
        jobs=tuple(options["ids"] or ()),
        payload=(options["payload"] or "").encode("utf-8"),
        interruption=options["interruption"],
        killed_by=options["killed_by"],
    )


def by_interruption(job: DeadJob) -> bool:
    """Whether a restart may have killed it: it stalled, and the ledger says that an interruption may have cut the
    lease."""
    return job.cause == deaths.STALLED and job.known is not None and job.known.interruption is not None


def suspects_of(ctx: TaskContext) -> Callable[[DeadJob], bool]:
    """Tells the restart suspects of the queue, as the audit does where it is there."""
    return ctx.ops.suspects(ctx.queue.name) if ctx.ops.suspects is not None else by_interruption


def selected(ctx: TaskContext, options: dict[str, Any]) -> Iterator[DeadJob]:
    """The dead jobs that fit, by id, up to the limit."""
    found = select(ctx.queue.server, ctx.queue.name, selection_of(options), ctx.ops.ledger)
    if options["suspect"] is not None:
        is_suspect = suspects_of(ctx)
        found = (job for job in found if is_suspect(job) is options["suspect"])
    return islice(found, options.get("limit"))


class Audit(Module):
    """Looks at dead jobs."""

    name = "audit"
    reads = frozenset({DEAD})
    summary = "Looks at dead jobs: how many, why, by which errors. Without filters at all of them."
    check = "would not change; looks in check mode too"
    acts = False
    options = (*FILTERS, LIMIT)
    returns: ClassVar = {
        "ids": f"the jobs, the first {MAX_IDS:,}",
        "causes": "how many died of each cause",
        "groups": f"the {GROUPS} largest groups: group, cause, error, count, example",
        "suspects": "how many may have died of a restart",
        "last_attempt": "how many died of an error: their next error kills them again",
        "held": "how many a worker still holds",
        "children": "how many are flow children",
        "damaged": "how many have no readable row",
        "unrecorded": "how many deaths the ledger does not know",
    }

    def inspect(self, ctx: TaskContext, options: dict[str, Any]) -> Decision:
        """Reads the dead set in pages, and counts."""
        ids: list[str] = []
        totals: Counter[str] = Counter()
        causes: Counter[str] = Counter()
        groups: dict[str, dict[str, Any]] = {}
        is_suspect = suspects_of(ctx)
        for number, job in enumerate(selected(ctx, options), 1):
            if number <= MAX_IDS:
                ids.append(job.job)
            causes[job.cause] += 1
            totals["count"] += 1
            totals["suspects"] += is_suspect(job)
            totals["last_attempt"] += job.cause == deaths.ERROR
            totals["held"] += job.held
            totals["children"] += job.parent
            totals["damaged"] += job.damaged
            totals["unrecorded"] += job.known is None
            fresh = {
                "group": job.error_group,
                "cause": job.cause,
                "error": job.error_text,
                "count": 0,
                "example": job.job,
            }
            groups.setdefault(job.error_group, fresh)["count"] += 1
            if number % 1000 == 0:
                ctx.go_on()
        largest = sorted(groups.values(), key=lambda g: (-g["count"], g["group"]))[:GROUPS]
        names = ("suspects", "last_attempt", "held", "children", "damaged", "unrecorded")
        returns = {"ids": ids, "causes": dict(causes), "groups": largest, **{name: totals[name] for name in names}}
        count = totals["count"]
        shown = ", ".join(f"{n} {cause}" for cause, n in causes.most_common())
        return Decision(
            count=count, items=ids[:NAMED], message=f"{count} dead" + (f": {shown}" if shown else ""), returns=returns
        )


class Rehydrate(Module):
    """Removed jobs come back."""

    name = "rehydrate"
    reads = frozenset({DEAD})
    moves = frozenset({DEAD, PENDING})
    summary = "Brings removed jobs back from the ledger or the archive: dead as they were, or waiting again."
    check = "would change (which), or would not; exact"
    options = (
        Option("ids", JOBS, "the jobs", REQUIRED, empty_is_error=True),
        Option("to", TEXT, "where to", "dead", choices=("dead", "pending")),
        AT_RATE,
    )
    returns: ClassVar = {"ids": "the jobs that are back", "lost": "ids that are kept nowhere", "alive": "ids that live"}

    def inspect(self, ctx: TaskContext, options: dict[str, Any]) -> Decision:
        """Which are gone, and kept somewhere."""
        ids = sorted(options["ids"])
        rows = ctx.queue.server.read_many([("EXISTS", ctx.queue.keys.row(job)) for job in ids])
        alive = [job for job, there in zip(ids, rows, strict=True) if there]
        gone = [job for job, there in zip(ids, rows, strict=True) if not there]
        ledger, queue, find = ctx.ops.ledger, ctx.queue.name, ctx.ops.find
        kept = [job for job in gone if newest_snapshot(ledger, queue, job, find) is not None]
        lost = [job for job in gone if job not in set(kept)]
        message = f"{len(lost)} are kept nowhere" if lost else ""
        diff: list[tuple[str, Any, Any]] = [(job, None, options["to"]) for job in kept]
        returns = {"ids": kept, "lost": lost, "alive": alive}
        return Decision(CHANGE if kept else SAME, len(kept), kept, message=message, diff=diff, returns=returns)

    def act(self, ctx: TaskContext, options: dict[str, Any], plan: Decision, resumed: bool) -> Result:
        """Brings them back; one that is there already stays as it is."""

        def result() -> Result:
            rows = ctx.queue.server.read_many([("EXISTS", ctx.queue.keys.row(job)) for job in plan.items])
            back = [job for job, there in zip(plan.items, rows, strict=True) if there]
            return Result(bool(back), len(back), back, plan.message, {**plan.returns, "ids": back})

        if plan.items:
            acting = ActOptions(options["rate"], why=f"playbook {ctx.run}", trigger="playbook")
            with ctx.telling(result):
                rehydrate_jobs(
                    ctx.ops.server,
                    ctx.queue.name,
                    plan.items,
                    ctx.ops.ledger,
                    find=ctx.ops.find,
                    requeue=options["to"] == "pending",
                    options=acting,
                )
        return result()

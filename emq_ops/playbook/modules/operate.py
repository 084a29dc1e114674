"""Modules for runbooks themselves: health, maintenance, wait_for."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar

from emq_ops.ledger import holds
from emq_ops.ledger.holds import Window
from emq_ops.passes.lease.holder import who
from emq_ops.passes.lease.owner import check_owner
from emq_ops.playbook.context import TaskContext
from emq_ops.playbook.decisions import CHANGE, UNKNOWN, Decision, Result
from emq_ops.playbook.foretold import ALL_SETS, RECORDS, WINDOWS
from emq_ops.playbook.modules.facts import look, look_many
from emq_ops.playbook.options import BOOLEAN, COUNT, DURATION, JOBS, SPAN, TEXT, Option
from emq_ops.playbook.registry import Module
from emq_ops.protocol.errors import EmqError, UnreachableError
from emq_ops.protocol.transitions.reads import JobState, job_state

NAMED = 1000
_BOUNDS = ("pending", "active", "scheduled", "dead", "lapsed")


def _shown(unix_ms: int) -> str:
    return datetime.fromtimestamp(unix_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


class Maintenance(Module):
    """Windows in which stalls do not count."""

    name = "maintenance"
    reads = frozenset({WINDOWS})
    moves = frozenset({WINDOWS})
    summary = (
        "Opens or closes a maintenance window of the queue: leases that lapse in it are recovered without counting."
    )
    check = "would change, or would not; exact"
    state = True
    options = (
        Option("state", TEXT, "open or closed", "open", choices=("open", "closed")),
        Option("for", SPAN, "how long it stays open, from now", 600_000),
        Option("why", TEXT, "for whoever asks", ""),
    )
    returns: ClassVar = {
        "open": "whether a window is open now",
        "until_ms": "when it ends (server clock; 0: it is closed)",
    }

    def inspect(self, ctx: TaskContext, options: dict[str, Any]) -> Decision:
        """The windows of exactly this queue that are open now."""
        check_owner(ctx.queue.server, ctx.queue.name, ctx.ops.ledger)
        now = ctx.queue.server.now_ms(ctx.queue.name)
        until = max((w.end_ms for w in self._open(ctx, now)), default=0)
        if options["state"] == "closed":
            returns = {"open": False, "until_ms": 0}
            if not until:
                return Decision(returns=returns)
            diff: list[tuple[str, Any, Any]] = [("window", f"until {_shown(until)}", None)]
            return Decision(CHANGE, 1, [ctx.queue.name], message="closed", diff=diff, returns=returns)
        end = now + options["for"]
        returns = {"open": True, "until_ms": end}
        if until >= end:
            return Decision(message=f"open until {_shown(until)} already", returns={"open": True, "until_ms": until})
        diff = [("window", f"until {_shown(until)}" if until else None, f"until {_shown(end)}")]
        plan = Decision(CHANGE, 1, [ctx.queue.name], message=f"open until {_shown(end)}", diff=diff, returns=returns)
        plan.data = {"start": now, "end": end}
        return plan

    def act(self, ctx: TaskContext, options: dict[str, Any], plan: Decision, resumed: bool) -> Result:
        """Opens or closes it."""
        ledger, selector = ctx.ops.ledger, self._selector(ctx)
        now = ctx.queue.server.now_ms(ctx.queue.name)
        if options["state"] == "closed":
            holds.close_windows(ledger, now, selector)
        elif not (resumed and any(w.end_ms >= plan.data["end"] for w in self._open(ctx, now))):
            why = options["why"] or f"playbook {ctx.run}"
            window = Window(selector, plan.data["start"], plan.data["end"], holder=who(), why=why)
            holds.open_window(ledger, window)
        return Result(True, 1, plan.items, plan.message, plan.returns)

    @staticmethod
    def _selector(ctx: TaskContext) -> str:
        return re.sub(r"([*?\\])", r"\\\1", ctx.queue.name)

    def _open(self, ctx: TaskContext, now: int) -> list[Window]:
        selector = self._selector(ctx)
        return [w for w in holds.all_windows(ctx.ops.ledger) if w.queues == selector and w.start_ms <= now < w.end_ms]


class Health(Module):
    """Looks at a queue."""

    name = "health"
    reads = ALL_SETS | {RECORDS}
    summary = "Looks at the queue: sizes, lapsed leases, ages, whether it is paused. Made for `assert`."
    check = "would not change; looks in check mode too"
    acts = False
    returns: ClassVar = {
        "exists": "whether the server has anything of the queue",
        "jobs": "how many jobs, in any state, flow parents that wait not counted",
        "paused": "whether the whole queue is paused",
        "pending": "jobs that wait, lanes not counted",
        "waiting": "jobs that wait, lanes counted",
        "active": "jobs in flight",
        "lapsed": "of these, leases that lapsed and nobody collected",
        "scheduled": "jobs that are not due yet, or not promoted",
        "overdue": "of these, jobs that are due",
        "dead": "dead jobs",
        "completed_total": "the counter of completed jobs",
        "failed_total": "the counter of deaths",
        "oldest_pending_ms": "age of the oldest pending job, by its id; 0 without one",
        "longest_lapsed_ms": "how long ago the first lapsed lease lapsed; 0 without one",
        "longest_overdue_ms": "for how long the first scheduled job has been due; 0 without one",
        "streams": "records of each stream that the config archives, by name",
        "led": "whether a daemon or command holds the queue's lease",
    }

    def fetch(self, ctxs: Sequence[TaskContext]) -> list[Any] | None:
        """One look at each."""
        return list(look_many(ctxs[0].ops.server, [(ctx.queue, list(ctx.policy.streams)) for ctx in ctxs]))

    def inspect(self, ctx: TaskContext, options: dict[str, Any]) -> Decision:
        """One look."""
        if isinstance(ctx.fetched, EmqError):
            raise ctx.fetched
        found = ctx.fetched or look(ctx.queue, list(ctx.policy.streams))
        found = found | {"paused": ctx.settled.get("paused", found["paused"])}
        words = ("waiting", "active", "scheduled", "dead")
        return Decision(message=", ".join(f"{found[word]} {word}" for word in words), returns=found)


class WaitFor(Module):
    """Waits."""

    name = "wait_for"
    reads = ALL_SETS
    summary = "Waits until the queue, or jobs, or the server, are as wanted; fails when the time is over."
    check = "would not change; cannot know whether what does not hold now will hold then"
    acts = False
    needs_one = (*_BOUNDS, "jobs", "reachable", "paused")
    options = (
        *(Option(name, COUNT, f"at most so many {name} jobs") for name in _BOUNDS),
        Option("jobs", JOBS, "these have ended: completed, or dead", empty_is_error=True),
        Option("may_die", BOOLEAN, "a dead one of `jobs` is fine; else it fails", False),
        Option("paused", BOOLEAN, "the queue is paused, or is not"),
        Option("reachable", BOOLEAN, "the server answers; while it does not, waits instead of giving up"),
        Option("timeout", DURATION, "how long to wait", 300_000),
        Option("every", SPAN, "how often to look", 1000),
    )
    returns: ClassVar = {
        "met": "whether it is as wanted",
        "waited_ms": "how long it took",
        "seen": "what was seen last: see the module health",
        "completed": "of `jobs`: ids that are gone from the server",
        "died": "of `jobs`: ids that are dead",
        "left": "of `jobs`: ids that are neither",
    }

    def inspect(self, ctx: TaskContext, options: dict[str, Any]) -> Decision:
        """Whether it holds now."""
        met, returns = self._look(ctx, options)
        if met and (options["may_die"] or not returns["died"]):
            return Decision(returns=returns | {"waited_ms": 0})
        return Decision(UNKNOWN, message=_told(options, returns), returns=returns | {"waited_ms": 0})

    def act(self, ctx: TaskContext, options: dict[str, Any], plan: Decision, resumed: bool) -> Result:
        """Looks again and again."""
        began = time.monotonic()
        said = ""
        while True:
            met, returns = self._look(ctx, options)
            waited = int((time.monotonic() - began) * 1000)
            returns["waited_ms"] = waited
            if returns.get("died") and not options["may_die"]:
                text = f"{len(returns['died'])} of the jobs died"
                return Result(message=text, returns=returns, error=text)
            if met:
                return Result(message=f"after {waited / 1000:.1f} s", returns=returns)
            told = _told(options, returns)
            if waited >= options["timeout"]:
                return Result(returns=returns, error=f"not within {options['timeout'] / 1000:g} s: {told}")
            if told != said:
                ctx.say(told)
                said = told
            ctx.sleep(max(0.01, min(options["every"], options["timeout"] - waited) / 1000))

    def _look(self, ctx: TaskContext, options: dict[str, Any]) -> tuple[bool, dict[str, Any]]:
        out: dict[str, Any] = {"met": False, "seen": {}, "completed": [], "died": [], "left": []}
        try:
            out["seen"] = seen = look(ctx.queue)
            seen["paused"] = ctx.settled.get("paused", seen["paused"])
            for job in options["jobs"] or ():
                state = job_state(ctx.queue, job)
                kind = {JobState.ABSENT: "completed", JobState.DEAD: "died"}.get(state, "left")
                out[kind].append(job)
        except UnreachableError:
            if not options["reachable"]:
                raise
            return False, out
        met = all(options[name] is None or seen[name] <= options[name] for name in _BOUNDS)
        met = met and not out["left"] and (options["paused"] is None or seen["paused"] == options["paused"])
        out["met"] = met
        return met, out


def _told(options: dict[str, Any], returns: dict[str, Any]) -> str:
    seen = returns["seen"]
    if not seen:
        return "the server does not answer"
    parts = [f"{seen[n]} {n}" for n in _BOUNDS if options[n] is not None and seen[n] > options[n]]
    if options["paused"] is not None and seen["paused"] != options["paused"]:
        parts.append("it is paused" if seen["paused"] else "it is not paused")
    if returns["died"]:
        parts.append(f"{len(returns['died'])} of the jobs died")
    if returns["left"]:
        parts.append(f"{len(returns['left'])} of the jobs have not ended")
    return ", ".join(parts)

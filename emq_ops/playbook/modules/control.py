"""Modules that steer a queue: pause, resume, limit_lane, weight_lane, drain, obliterate."""

from __future__ import annotations

from typing import Any, ClassVar

from emq_ops.playbook.context import TaskContext
from emq_ops.playbook.decisions import CHANGE, SAME, UNKNOWN, Decision, Result
from emq_ops.playbook.errors import TaskFailure
from emq_ops.playbook.foretold import ALL_SETS, PENDING, SCHEDULED
from emq_ops.playbook.modules.facts import look
from emq_ops.playbook.options import BOOLEAN, COUNT, GROUP, REQUIRED, Option
from emq_ops.playbook.registry import Module
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.transitions import control, reads


def _paused(lane: str | None) -> str:
    return f"paused {lane}" if lane else "paused"


_LANE = Option("lane", GROUP, "just this lane, by its GRP id; without it the whole queue")
NAMED = 1000
"""Ids that a plan names; counts are always whole."""


def is_paused(ctx: TaskContext, lane: str | None) -> bool:
    """Whether the queue, or one lane of it, is paused, or would be by now."""
    q, settled = ctx.queue, ctx.settled.get(_paused(lane))
    if settled is not None:
        return bool(settled)
    return reads.is_paused(q) if lane is None else q.server.read("SISMEMBER", q.keys.paused, lane) == 1


class _Pausing(Module):
    """What pause and resume share: a goal, reached or not."""

    options = (_LANE,)
    check = "would change, or would not; exact"
    state = True
    returns: ClassVar = {"paused": "whether it is paused now", "was_paused": "whether it was before"}
    goal: ClassVar[bool]

    def inspect(self, ctx: TaskContext, options: dict[str, Any]) -> Decision:
        """Whether it is paused."""
        lane = options["lane"]
        before = is_paused(ctx, lane)
        returns = {"paused": self.goal, "was_paused": before}
        message = (f"lane {lane} " if lane else "") + ("paused" if self.goal else "not paused")
        if before == self.goal:
            return Decision(message=f"{message} already" if self.goal else message, returns=returns)
        what = f"lane {lane} paused" if lane else "paused"
        items, diff = [lane or ctx.queue.name], [(what, before, self.goal)]
        plan = Decision(CHANGE, 1, items, message=message if self.goal else "resumed", diff=diff, returns=returns)
        plan.settles = {_paused(lane): self.goal}
        return plan

    def act(self, ctx: TaskContext, options: dict[str, Any], plan: Decision, resumed: bool) -> Result:
        """Sets it; doing so twice is doing so once."""
        lane = options["lane"]
        if lane is None:
            (control.pause_queue if self.goal else control.resume_queue)(ctx.queue)
        else:
            (control.pause_lane if self.goal else control.resume_lane)(ctx.queue, lane)
        return Result(True, 1, plan.items, plan.message, plan.returns)


class Pause(_Pausing):
    """Nothing is claimed any more."""

    name = "pause"
    summary = "Pauses the queue or one lane: nothing is claimed from it until it is resumed."
    goal = True


class Resume(_Pausing):
    """Undoes pause."""

    name = "resume"
    summary = "Resumes a paused queue or lane."
    goal = False


class _LaneNumber(Module):
    """What limit_lane and weight_lane share: one number of a lane, 0 where it has none. `number`: its name."""

    check = "would change, or would not; exact"
    state = True
    number: ClassVar[str]

    def inspect(self, ctx: TaskContext, options: dict[str, Any]) -> Decision:
        """The number as it is."""
        lane, wanted, keys = options["lane"], options[self.number], ctx.queue.keys
        raw = ctx.queue.server.read("HGET", keys.glimit if self.number == "limit" else keys.gweight, lane)
        named = f"{self.number} {lane}"
        before = int(ctx.settled.get(named, raw if raw is not None and raw.isdigit() else 0))
        returns = {self.number: wanted, "was": before}
        message = f"{self.number} {wanted or 'none'}"
        if before == wanted:
            return Decision(message=message, returns=returns)
        message = f"{message}, was {before or 'none'}"
        plan = Decision(CHANGE, 1, [lane], message=message, returns=returns, settles={named: wanted})
        plan.diff = [(f"{self.number} of lane {lane}", before, wanted)]
        return plan

    def act(self, ctx: TaskContext, options: dict[str, Any], plan: Decision, resumed: bool) -> Result:
        """Sets it; doing so twice is doing so once."""
        self._set(ctx.queue, options["lane"], options[self.number])
        return Result(True, 1, plan.items, plan.message, plan.returns)

    def _set(self, q: Queue, lane: str, number: int) -> None:
        raise NotImplementedError


class LimitLane(_LaneNumber):
    """Sets a lane's ceiling."""

    name = "limit_lane"
    number = "limit"
    summary = "Sets how many of a lane's jobs may be in flight at once."
    options = (
        Option("lane", GROUP, "the lane, by its GRP id", REQUIRED),
        Option("limit", COUNT, "the ceiling; 0 takes it away", REQUIRED),
    )
    returns: ClassVar = {"limit": "the ceiling now (0: none)", "was": "the ceiling before (0: none)"}

    def _set(self, q: Queue, lane: str, number: int) -> None:
        if number:
            control.limit_lane(q, lane, number)
        else:
            control.unlimit_lane(q, lane)


class WeightLane(_LaneNumber):
    """Sets a lane's weight."""

    name = "weight_lane"
    number = "weight"
    summary = "Sets how many of a lane's jobs are claimed each time that its turn comes."
    options = (
        Option("lane", GROUP, "the lane, by its GRP id", REQUIRED),
        Option("weight", COUNT, "jobs a turn; 0 takes it away (one)", REQUIRED),
    )
    returns: ClassVar = {"weight": "the weight now (0: none)", "was": "the weight before (0: none)"}

    def _set(self, q: Queue, lane: str, number: int) -> None:
        control.weight_lane(q, lane, number or None)


class Drain(Module):
    """Deletes waiting jobs."""

    name = "drain"
    reads = frozenset({PENDING, SCHEDULED})
    moves = frozenset({PENDING, SCHEDULED})
    summary = "Deletes the waiting jobs of the queue or of one lane, with rows and logs. Active jobs stay."
    check = "would change (how many, the first of which), or would not; exact while nobody adds or claims"
    destructive = True
    options = (_LANE, Option("scheduled", BOOLEAN, "the scheduled ones too (whole queue only)", False))
    returns: ClassVar = {"removed": "how many jobs were deleted"}

    def inspect(self, ctx: TaskContext, options: dict[str, Any]) -> Decision:
        """How many wait, and the first of them."""
        k = ctx.queue.keys
        keys = [k.lane(options["lane"])] if options["lane"] else [k.pending]
        if options["scheduled"] and not options["lane"]:
            keys.append(k.schedule)
        replies = ctx.queue.server.read_many(
            [cmd for key in keys for cmd in (("ZCARD", key), ("ZRANGE", key, 0, NAMED - 1))]
        )
        count = sum(int(n) for n in replies[::2])
        items = [job.decode("utf-8", "replace") for page in replies[1::2] for job in page]
        return Decision(CHANGE if count else SAME, count, items, count, returns={"removed": count})

    def act(self, ctx: TaskContext, options: dict[str, Any], plan: Decision, resumed: bool) -> Result:
        """Drains in slices."""

        def so_far() -> Result:
            gone = max(0, plan.count - self.inspect(ctx, options).count)
            return Result(gone > 0, gone, returns={"removed": gone})

        with ctx.telling(so_far):
            if options["lane"]:
                removed = control.drain_lane(ctx.queue, options["lane"])
            else:
                removed = control.drain(ctx.queue, include_schedule=options["scheduled"])
        removed = max(removed, plan.count) if resumed else removed
        return Result(removed > 0, removed, plan.items, returns={"removed": removed})


class Obliterate(Module):
    """Takes a queue away."""

    name = "obliterate"
    reads = ALL_SETS
    moves = ALL_SETS
    summary = "Takes a whole paused queue away. Event streams and the flow outbox stay: they belong to others."
    check = "would change (how many jobs), or would not; cannot know where the queue is not paused yet"
    destructive = True
    options = (Option("force", BOOLEAN, "though jobs are active", False),)
    returns: ClassVar = {"removed": "how many jobs were in it"}
    _budget = 1000

    def inspect(self, ctx: TaskContext, options: dict[str, Any]) -> Decision:
        """Whether there is anything, and whether it may go."""
        found = look(ctx.queue)
        jobs, there = found["jobs"], found["exists"]
        if not there:
            return Decision(returns={"removed": 0})
        why = "" if is_paused(ctx, None) else "the queue is not paused"
        if not why and found["active"] and not options["force"]:
            why = f"{found['active']} jobs are active"
        if why and not ctx.check:
            raise TaskFailure(why, where=ctx.queue.name, fix="pause it and wait for its active jobs first, or force")
        if why:
            # An earlier task would have paused or emptied it by then.
            return Decision(UNKNOWN, jobs, [ctx.queue.name], jobs, message=f"{why} now", returns={"removed": jobs})
        plan = Decision(CHANGE, jobs, [ctx.queue.name], jobs, message=f"the queue and {jobs} jobs in it")
        plan.diff, plan.returns = [("queue", f"{jobs} jobs", None)], {"removed": jobs}
        return plan

    def act(self, ctx: TaskContext, options: dict[str, Any], plan: Decision, resumed: bool) -> Result:
        """Obliterates, a budget of jobs a request."""
        if resumed and not look(ctx.queue)["exists"]:
            return Result(True, plan.count, plan.items, plan.message, plan.returns)
        lanes = [lane.group for lane in reads.every_lane(ctx.queue)]

        def so_far() -> Result:
            gone = max(0, plan.count - look(ctx.queue)["jobs"])
            return Result(gone > 0, gone, returns={"removed": gone})

        with ctx.telling(so_far):
            while not control.obliterate(ctx.queue, force=options["force"], budget=self._budget, lanes=lanes):
                ctx.go_on()
        return Result(True, plan.count, plan.items, plan.message, plan.returns)

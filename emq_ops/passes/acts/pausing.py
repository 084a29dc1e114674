"""Stopping a queue or a lane, and letting it go on: one field of the wire, set by a run that says who did it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from emq_ops.passes.frame.context import Context
from emq_ops.passes.frame.contract import Work
from emq_ops.passes.frame.order import Order, Prediction
from emq_ops.passes.report import PassReport
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.transitions import control, reads


@dataclass(slots=True)
class PauseReport(PassReport):
    """`paused`: whether it is now (in a dry run: would be); `was`: whether it was before; `waiting`: jobs that could be
    claimed, `active`: jobs in flight, which go on."""

    kind: str = ""
    lane: str = ""
    paused: bool = False
    was: bool = False
    waiting: int = 0
    active: int = 0

    def counts(self) -> dict[str, int]:
        """Whether it changed anything."""
        return {"changed": 1} if self.paused != self.was else {}


class _Pausing(Work):
    """What a pause and its end share. Set twice is set once, so that a life that ended early is just begun again."""

    kind: str
    goal: ClassVar[bool]

    def report(self, order: Order) -> PauseReport:
        """What is wanted."""
        return PauseReport(order.queue, kind=self.kind, lane=order.policy.lane, paused=self.goal, was=not self.goal)

    def run(self, context: Context) -> None:
        """Looks, and sets it where it is not so."""
        q, lane, report = Queue(context.server, context.queue), context.policy.lane, context.report
        if not context.life:
            self._look(q, report)
        if report.was == self.goal:
            return
        context.open()
        if lane:
            (control.pause_lane if self.goal else control.resume_lane)(q, lane)
        else:
            (control.pause_queue if self.goal else control.resume_queue)(q)

    def predict(self, context: Context) -> Prediction:
        """Whether it would change."""
        report = context.report
        self._look(Queue(context.server, context.queue), report)
        report.status = "dry"
        return Prediction(report, count=int(report.was != self.goal))

    def _look(self, q: Queue, report: PauseReport) -> None:
        k, lane = q.keys, report.lane
        paused = ("SISMEMBER", k.paused, lane) if lane else ("HEXISTS", k.meta, "paused")
        waiting = ("ZCARD", k.lane(lane) if lane else k.pending)
        active = ("HGET", k.gactive, lane) if lane else ("ZCARD", k.active)
        was, waits, flies = q.server.read_many([paused, waiting, active])
        report.was, report.waiting, report.active = was == 1, int(waits), int(flies or 0)
        if not lane:
            report.waiting += sum(one.waiting for one in reads.lanes(q))


class PauseWork(_Pausing):
    """Nothing is claimed any more."""

    kind = "pause"
    goal = True


class ResumeWork(_Pausing):
    """Undoes a pause."""

    kind = "resume"
    goal = False


@dataclass(slots=True)
class LimitReport(PassReport):
    """`limit`: of the lane now, `was`: before; 0: none."""

    lane: str = ""
    limit: int = 0
    was: int = 0

    def counts(self) -> dict[str, int]:
        """Whether it changed anything."""
        return {"changed": 1} if self.limit != self.was else {}


@dataclass(slots=True)
class WeightReport(PassReport):
    """`weight`: of the lane now, `was`: before; 0: none, which weighs one."""

    lane: str = ""
    weight: int = 0
    was: int = 0

    def counts(self) -> dict[str, int]:
        """Whether it changed anything."""
        return {"changed": 1} if self.weight != self.was else {}


class _LaneNumberWork(Work):
    """One number of a lane: looked at, and set where it is another. `name`: of the number in policy and report."""

    name: ClassVar[str]
    made: ClassVar[type[LimitReport | WeightReport]]

    def report(self, order: Order) -> LimitReport | WeightReport:
        """What is wanted."""
        return self.made(order.queue, lane=order.policy.lane, **{self.name: getattr(order.policy, self.name)})

    def run(self, context: Context) -> None:
        """Looks, and sets it where it is not so."""
        q, policy, report = Queue(context.server, context.queue), context.policy, context.report
        wanted = getattr(policy, self.name)
        if not context.life:
            report.was = self._look(q, policy.lane)
        if report.was == wanted:
            return
        context.open()
        self._set(q, policy.lane, wanted)

    def predict(self, context: Context) -> Prediction:
        """Whether it would change."""
        report = context.report
        report.was, report.status = self._look(Queue(context.server, context.queue), report.lane), "dry"
        return Prediction(report, count=int(report.was != getattr(report, self.name)))

    def _look(self, q: Queue, lane: str) -> int:
        raw = q.server.read("HGET", q.keys.glimit if self.name == "limit" else q.keys.gweight, lane)
        return int(raw) if raw is not None and raw.isdigit() else 0

    def _set(self, q: Queue, lane: str, number: int) -> None:
        raise NotImplementedError


class LimitLaneWork(_LaneNumberWork):
    """A lane's ceiling of jobs in flight."""

    name = "limit"
    made = LimitReport

    def _set(self, q: Queue, lane: str, number: int) -> None:
        if number:
            control.limit_lane(q, lane, number)
        else:
            control.unlimit_lane(q, lane)


class WeightLaneWork(_LaneNumberWork):
    """How many of a lane's jobs are claimed a turn."""

    name = "weight"
    made = WeightReport

    def _set(self, q: Queue, lane: str, number: int) -> None:
        control.weight_lane(q, lane, number or None)

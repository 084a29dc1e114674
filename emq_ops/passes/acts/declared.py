"""The acts on dead jobs, as every door knows them: passes on demand, without a section of the YAML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from emq_ops.passes.frame.contract import Pass
from emq_ops.policy.models import PassPolicy

RATE = 500
"""Jobs a second unless said otherwise."""
SLICE = 100
"""Jobs a script."""


@dataclass(frozen=True, slots=True)
class ActPolicy(PassPolicy):
    """How an act goes about it: at most `rate` jobs a second, `slice` a script; `why` is recorded with who did it.
    `protect`: nothing may be removed from the queue. Kept with the run under these names."""

    rate: int = RATE
    slice: int = SLICE
    why: str = ""
    protect: bool = False


@dataclass(frozen=True, slots=True)
class SelectedPolicy(ActPolicy):
    """Of an act on selected jobs. `selection`: the filters that took them; `keep_attempts`: how many attempts a
    requeued job keeps at the most (None: all); `part_of`: the run over several queues that this one is a part of."""

    selection: Mapping[str, Any] = field(default_factory=dict)
    keep_attempts: int | None = None
    part_of: str = ""


@dataclass(frozen=True, slots=True)
class MovePolicy(SelectedPolicy):
    """`to_queue`: where the jobs go; `to_lane`: into this lane there, by its GRP id ("": grouped ones keep theirs)."""

    to_queue: str = ""
    to_lane: str = ""


@dataclass(frozen=True, slots=True)
class EditPolicy(ActPolicy):
    """`job`: whose payload; `new`: the SHA-1 of the one that takes its place."""

    job: str = ""
    new: str = ""


@dataclass(frozen=True, slots=True)
class UndoPolicy(ActPolicy):
    """`undoes`: the run that took the jobs away."""

    undoes: str = ""


@dataclass(frozen=True, slots=True)
class RehydratePolicy(ActPolicy):
    """`jobs`: the first of those that are brought back; `requeue`: they wait again afterwards."""

    jobs: tuple[str, ...] = ()
    requeue: bool = False


@dataclass(frozen=True, slots=True)
class PausePolicy(ActPolicy):
    """`lane`: just this lane, by its GRP id; '' the whole queue."""

    lane: str = ""


@dataclass(frozen=True, slots=True)
class ObliteratePolicy(ActPolicy):
    """`force`: though jobs are in flight."""

    force: bool = False


@dataclass(frozen=True, slots=True)
class LanePolicy(ActPolicy):
    """`lane`: by its GRP id; `limit`: how many of its jobs may be in flight at once, 0 takes the limit away."""

    lane: str = ""
    limit: int = 0


@dataclass(frozen=True, slots=True)
class WeightPolicy(ActPolicy):
    """`lane`: by its GRP id; `weight`: how many of its jobs are claimed a turn, 0 takes the weight away (one)."""

    lane: str = ""
    weight: int = 0


REQUEUE = Pass(
    "requeue",
    "",
    SelectedPolicy,
    work="emq_ops.passes.acts.act:RequeueDead",
    summary="Put selected dead jobs back to wait; attempts stay, the stall count goes.",
    observes=False,
)
REMOVE = Pass(
    "remove",
    "",
    SelectedPolicy,
    work="emq_ops.passes.acts.act:RemoveDead",
    summary="Take selected dead jobs away, whole; an undo brings them back.",
    protected="refused",
    observes=False,
)
DRAIN = Pass(
    "drain",
    "",
    SelectedPolicy,
    work="emq_ops.passes.acts.act:DrainWaiting",
    summary="Take selected waiting jobs away, whole; an undo brings them back to where they stood.",
    protected="refused",
    observes=False,
)
MOVE = Pass(
    "move",
    "",
    MovePolicy,
    work="emq_ops.passes.acts.moving:MoveWaiting",
    summary="Put selected waiting jobs into another queue or lane; an undo brings back those that still wait.",
    protected="refused",
    observes=False,
)
EDIT = Pass(
    "edit",
    "",
    EditPolicy,
    work="emq_ops.passes.acts.edit:EditPayload",
    summary="Put another payload in the place of a job's; an undo puts the old one back.",
    observes=False,
)
UNDO = Pass(
    "undo",
    "",
    UndoPolicy,
    work="emq_ops.passes.acts.undo:UndoRun",
    summary="Bring back every job that a removal or a trim took away.",
    observes=False,
)
REHYDRATE = Pass(
    "rehydrate",
    "",
    RehydratePolicy,
    work="emq_ops.passes.acts.undo:RehydrateJobs",
    summary="Bring named jobs back from the ledger or the archive.",
    observes=False,
)
PAUSE = Pass(
    "pause",
    "",
    PausePolicy,
    work="emq_ops.passes.acts.pausing:PauseWork",
    summary="Pause a queue or a lane: nothing is claimed from it until it is resumed.",
    observes=False,
    sets=True,  # holds and leases keep passes away; whoever stops a queue in an incident must not wait for them
)
RESUME = Pass(
    "resume",
    "",
    PausePolicy,
    work="emq_ops.passes.acts.pausing:ResumeWork",
    summary="Resume a paused queue or lane.",
    observes=False,
    sets=True,
)
LIMIT_LANE = Pass(
    "limit_lane",
    "",
    LanePolicy,
    work="emq_ops.passes.acts.pausing:LimitLaneWork",
    summary="Set how many of a lane's jobs may be in flight at once.",
    observes=False,
    sets=True,
)
WEIGHT_LANE = Pass(
    "weight_lane",
    "",
    WeightPolicy,
    work="emq_ops.passes.acts.pausing:WeightLaneWork",
    summary="Set how many of a lane's jobs are claimed each time that its turn comes.",
    observes=False,
    sets=True,
)
OBLITERATE = Pass(
    "obliterate",
    "",
    ObliteratePolicy,
    work="emq_ops.passes.acts.obliterate:ObliterateWork",
    summary="Take a whole paused queue away.",
    protected="refused",
    observes=False,
)

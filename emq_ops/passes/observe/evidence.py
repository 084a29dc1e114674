"""Which life of the server a lapsed lease belongs to, and so whether its stall counts. Pure: facts in, verdict out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from emq_ops.ledger.holds import Window
from emq_ops.ledger.interruptions import FAILOVER, Counted, Interruption


@dataclass(frozen=True, slots=True)
class LapsedLease:
    """A lapsed lease as it was found. `attempts` is its token, None on a ghost; `epoch` the row's ``lease_epoch``."""

    job: str
    deadline_ms: int
    attempts: int | None
    epoch: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """`exempt`: recover it without counting. `evidence`: window, epoch, census, census-uncertain, clock, none.
    `interruption`: the one that it lapsed across, None where it is of this life."""

    exempt: bool
    evidence: str
    interruption: int | None = None


@dataclass(frozen=True, slots=True)
class JudgingContext:
    """What is known besides the lease: the server's `run_id`, the windows that may cover a deadline, the newest
    interruption, whether an epoch of this run proves anything, the census' entries for the leases in question, and the
    queue's longest lease."""

    run_id: str
    windows: Sequence[Window] = ()
    interruption: Interruption | None = None
    epoch_proves: bool = True
    census: Mapping[str, Counted] = field(default_factory=dict)
    lease_ms: int = 30_000


def judge(lease: LapsedLease, scene: JudgingContext) -> Verdict:
    """The verdict on one lease, by the design's order of evidence."""
    if any(w.start_ms <= lease.deadline_ms <= w.end_ms for w in scene.windows):
        return Verdict(True, "window")
    cut = scene.interruption
    if cut is None:
        return Verdict(False, "none")
    if lease.epoch == scene.run_id and scene.epoch_proves:
        return Verdict(False, "epoch")
    if cut.census_ms is not None:
        entry = scene.census.get(lease.job)
        if entry is None or entry.token != lease.attempts or entry.deadline_ms != lease.deadline_ms:
            return Verdict(False, "census")
        return Verdict(True, "census-uncertain" if _may_be_later(lease, cut, scene.lease_ms) else "census", cut.id)
    if lease.deadline_ms < cut.ended_ms + scene.lease_ms:
        return Verdict(True, "clock", cut.id)
    return Verdict(False, "clock")


def _may_be_later(lease: LapsedLease, cut: Interruption, lease_ms: int) -> bool:
    # Longer than any lease from before could stand: claimed or extended between the interruption and the census.
    last_before = cut.started_ms if cut.kind == FAILOVER and cut.started_ms is not None else cut.ended_ms
    return lease.deadline_ms > last_before + lease_ms


def epoch_proves(run_id: str, under_this_run: Sequence[Interruption], *, primary_before: bool) -> bool:
    """Whether a row stamped with this run id was surely claimed after the last interruption: only where no
    interruption ended under this run id but the one that brought it in, and it never was a primary before."""
    if primary_before:
        return False
    brought_in = 1 if under_this_run and under_this_run[0].run_before != run_id else 0
    return len(under_this_run) == brought_in

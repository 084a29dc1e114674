"""The stalled sweep, as every door knows it."""

from __future__ import annotations

from emq_ops.passes.frame.contract import Pass
from emq_ops.policy.models import StalledPolicy

SWEEP = Pass(
    "sweep",
    "stalled",
    StalledPolicy,
    work="emq_ops.passes.sweep.stalled_sweep:StalledSweep",
    summary="Recover lapsed leases of a queue, and dead-letter what stalled too often.",
)

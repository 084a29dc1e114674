"""The dead trim, as every door knows it."""

from __future__ import annotations

from emq_ops.passes.frame.contract import Pass
from emq_ops.policy.models import DeadPolicy


def _archives(policy: DeadPolicy) -> bool:
    return policy.archive


def _bounded(policy: DeadPolicy) -> bool:
    return not policy.protect and (policy.keep is not None or policy.max_age_ms is not None)


TRIM = Pass(
    "trim",
    "dead",
    DeadPolicy,
    work="emq_ops.passes.trim.dead_trim:Trim",
    summary="Delete dead jobs beyond what the policy keeps, each with its row, logs and flow books.",
    protected="refused",
    needs_stores=_archives,
    runs=_bounded,
)

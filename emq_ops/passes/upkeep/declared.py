"""What the daemon does for the archive of a queue beside folding: small segments are merged, and some are read again.

By hand: ``archive compact`` and ``archive verify``, which do the whole of one stream.
"""

from __future__ import annotations

from dataclasses import dataclass

from emq_ops.passes.frame.contract import Pass
from emq_ops.policy.kinds import POSITIVE, SPAN, size
from emq_ops.policy.models import PassPolicy
from emq_ops.policy.options import flat, option
from emq_ops.policy.schedule import Schedule
from emq_ops.policy.triggers import Interval

HOUR_MS = 3_600_000
MiB = 1 << 20


@dataclass(frozen=True, slots=True)
class CompactPolicy(PassPolicy):
    """The merging of a queue's small segments, and the pruning of old local rows. `most_bytes`: how much one run
    reads."""

    schedule: Schedule = flat(Schedule(Interval(HOUR_MS)), every="how often small segments are merged")
    below_bytes: int = option(size(1), 8 * MiB, "segments smaller than this are merged, each day's for itself")
    segment_bytes: int = option(size(1), 64 * MiB, "a merged segment is at most this large, uncompressed")
    most_bytes: int = option(size(1), 512 * MiB, "so much is read in one run; the next goes on")
    compact_grace_ms: int = option(SPAN, 86_400_000, "merged segments are kept for this long")
    local_keep_ms: int | None = option(SPAN, None, "shipped rows leave the local database after this long")
    protect: bool = False


@dataclass(frozen=True, slots=True)
class VerifyPolicy(PassPolicy):
    """The checking of some of a queue's segments, the longest unchecked first."""

    schedule: Schedule = flat(Schedule(Interval(HOUR_MS)), every="how often some segments are read again")
    most_bytes: int = option(size(1), 64 * MiB, "so much is read in one run", key="bytes")
    objects: int = option(POSITIVE, 20, "so many are read in one run")
    protect: bool = False


def _always(_policy: PassPolicy) -> bool:
    return True


COMPACT = Pass(
    "compact",
    "compact",
    CompactPolicy,
    work="emq_ops.passes.upkeep.compact:Compaction",
    summary="Merge the small segments of a queue's archive, and prune old local rows.",
    observes=False,
    needs_stores=_always,
    of_archive=True,
)
VERIFY = Pass(
    "verify",
    "verify",
    VerifyPolicy,
    work="emq_ops.passes.upkeep.verify:Verification",
    summary="Read some segments of a queue's archive again, the longest unchecked first.",
    observes=False,
    needs_stores=_always,
    of_archive=True,
)

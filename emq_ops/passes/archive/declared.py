"""The archive of one event stream, as every door knows it."""

from __future__ import annotations

from emq_ops.passes.frame.contract import Pass
from emq_ops.policy.models import StreamPolicy


def _always(_policy: StreamPolicy) -> bool:
    return True


ARCHIVE = Pass(
    "archive",
    "streams",
    StreamPolicy,
    work="emq_ops.passes.archive.stream:StreamPass",
    summary="Archive a stream once: read it to its top, ship and prove it, then trim all that the policy lets go.",
    many=True,
    protected="as applied",
    observes=False,
    needs_stores=_always,
)

"""The keeper of `operations.json` (``locks``), as the public calls that it is."""

from __future__ import annotations

from typing import Any

from emq_ops.protocol.queue import Queue
from emq_ops.protocol.transitions.locks import Locks


def locks(q: Queue, args: dict[str, Any]) -> list[Any]:
    """A step each: how many jobs are tracked then; for a beat how many were extended, and which were not."""
    keeper = Locks(q, args["lease_ms"])
    replies: list[Any] = []
    for what, *rest in args["steps"]:
        if what == "beat":
            lost = [job.encode("ascii") for job in keeper.beat()]
            replies.append([len(keeper) - len(lost), lost])
            continue
        keeper.track(*rest) if what == "track" else keeper.untrack(*rest)
        replies.append(len(keeper))
    return replies

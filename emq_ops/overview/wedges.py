"""Work that waits while nobody does it, told from two looks at a queue."""

from __future__ import annotations

from emq_ops.overview.look import QueueLook

OVERDUE_MS = 60_000
"""A repeatable that was due for longer fires for nobody: whoever pumps beats every second."""
NO_WORKERS, UNCLAIMED, LANES_FULL, OVERDUE = "no_workers", "unclaimed", "lanes_full", "repeatable_overdue"


def wedges(before: QueueLook, now: QueueLook) -> dict[str, str]:
    """What stood still from one look to the next: kind -> words. A paused queue waits on purpose."""
    out: dict[str, str] = {}
    if now.repeat_ms is not None and now.now_ms - now.repeat_ms > OVERDUE_MS:
        seconds = (now.now_ms - now.repeat_ms) // 1000
        out[OVERDUE] = f"repeatable '{now.repeat}' has been due for {seconds:,} s: nobody fires it (`promote`)"
    if now.paused or before.paused:
        return out
    if now.lanes and now.lanes_full == now.lanes and not (now.active or before.active):
        out[LANES_FULL] = (
            f"all {now.lanes} lanes with work are at their limit, and nothing is in flight "
            "(`emq-ops doctor` mends wrong counts)"
        )
        if not now.pending:
            return out
    still = before.waiting and now.waiting >= before.waiting and now.ended == before.ended
    if not still:
        return out
    if not (now.active or before.active):
        out[NO_WORKERS] = f"{now.waiting:,} jobs wait, nothing is in flight, and none ended: no worker claims here"
    elif now.pending and now.first == before.first and (now.ceiling is None or now.active < now.ceiling):
        out[UNCLAIMED] = f"{now.pending:,} jobs wait, and the first of them is not claimed though others are in flight"
    return out

"""The one write that loses data: trimming a stream, slice by slice, each slice with every check in the same script."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from emq_archive.model import StreamId, parse_id, show_id
from emq_archive.write.facts import Facts, Group
from emq_ops.protocol.fence import Fence
from emq_ops.protocol.queue import Queue

Verdict = Literal["trimmed", "gone", "life", "below"]


@dataclass(frozen=True, slots=True)
class Trimmed:
    """What one slice did. `first`: the entry that stood first before; `bound`: what it went up to, which is lower than
    asked for where groups (`held`) still need entries; `more`: there is work left below it.

    Only the verdict ``trimmed`` changed anything. ``gone``: no stream; ``life``: made anew since it was read;
    ``below``: entries below the first one that was read.
    """

    verdict: Verdict
    removed: int
    first: StreamId | None
    bound: StreamId
    more: bool
    held: tuple[Group, ...]


def trim_slice(
    queue: Queue,
    stream: str,
    fence: Fence | None,
    bound: StreamId,
    *,
    facts: Facts,
    first_read: StreamId,
    groups: Literal["respect", "ignore"] = "respect",
    spared: Iterable[StreamId] = (),
) -> Trimmed:
    """Removes what is below `bound` (exclusive), but for the `spared` ids, if the stream still is what `facts` say.

    Raises FenceError (nothing was removed) and what the server's errors are.
    """
    reply = queue.run(
        "stream_trim",
        [queue.keys.stream(stream), queue.keys.lease],
        *fence_args(fence),
        show_id(bound),
        facts.run_id,
        show_id(facts.last_generated),
        facts.entries_added,
        show_id(facts.max_deleted),
        show_id(first_read),
        show_id(facts.first) if facts.first else "",
        facts.first_digest,
        groups,
        facts.length,
        *map(show_id, sorted(spared)),
    )
    verdict, removed, first, used, more, held = reply
    return Trimmed(
        verdict.decode("ascii"),
        int(removed),
        parse_id(first) if first else None,
        parse_id(used),
        bool(more),
        tuple(Group.of(group) for group in held),
    )


def set_watermark(queue: Queue, stream: str, fence: Fence | None, evt: str) -> bool:
    """Caches the ``EVT`` id of the newest archived record for other readers; False where a higher one stands.
    Raises FenceError, DamagedError, and ServerError (code ``OOM`` at the memory limit)."""
    keys = [queue.keys.watermark(stream), queue.keys.lease]
    return bool(queue.run("stream_watermark", keys, *fence_args(fence), evt))


def fence_args(fence: Fence | None) -> tuple[str, str, str]:
    """State, token and run id for a script; empty without a lease, which only passes where nobody leads the queue."""
    return fence.args if fence is not None else ("", "", "")

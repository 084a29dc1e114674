"""The one write that loses data: trimming a stream, slice by slice, each slice with every check in the same script."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from emq_archive.model import LAST_ID, StreamId, parse_id, show_id
from emq_archive.write.facts import Group
from emq_archive.write.marks import Left, Mark
from emq_ops.protocol.fence import Fence
from emq_ops.protocol.queue import Queue

Verdict = Literal["trimmed", "gone", "life", "moved", "changed"]


@dataclass(frozen=True, slots=True)
class Trimmed:
    """What one slice did. `first`: the entry that stood first before; `bound`: what it went up to, which is lower than
    asked for where groups (`held`) still need entries; `left`: what still stands of each mark.

    Only the verdict ``trimmed`` changed anything. ``gone``: no stream; ``life``: another life of the server; ``moved``:
    others took entries off its head since; ``changed``: other entries stand there than were read.
    """

    verdict: Verdict
    removed: int
    first: StreamId | None
    bound: StreamId
    held: tuple[Group, ...] = ()
    left: tuple[Left, ...] = ()


@dataclass(frozen=True, slots=True)
class Trimmer:
    """Trims one stream under a fence (None: only where nobody leads the queue), in the server's life `run_id`.
    `spared`: ids that stay, since they could not be archived."""

    queue: Queue
    stream: str
    fence: Fence | None
    run_id: str
    groups: Literal["respect", "ignore"] = "respect"
    spared: Collection[StreamId] = ()

    def slice(self, bound: StreamId, marks: Sequence[Mark]) -> Trimmed:
        """Removes what is below `bound` (exclusive) if it is, byte for byte, what `marks` (from the head of the stream
        on) say was read. Raises FenceError (nothing was removed) and what the server's errors are."""
        stay = [show_id(i) for i in self.spared if marks and marks[0].first <= i < bound]
        reply = self.queue.run(
            "stream_trim",
            [self.queue.keys.stream(self.stream), self.queue.keys.lease],
            *fence_args(self.fence),
            show_id(bound),
            self.run_id,
            self.groups,
            show_id(marks[0].first if marks else LAST_ID),
            len(stay),
            *stay,
            *(text for m in marks for text in (show_id(m.last), m.digest, " ".join(map(str, m.counts)))),
        )
        verdict, removed, first, used, held, left = reply
        return Trimmed(
            verdict.decode("ascii"),
            int(removed),
            parse_id(first) if first else None,
            parse_id(used),
            tuple(map(Group.of, held)),
            tuple(Left(int(n), parse_id(i) if i else None, digest.decode("ascii")) for n, i, digest in left),
        )


def fence_args(fence: Fence | None) -> tuple[str, str, str]:
    """State, token and run id for a script; empty without a lease, which only passes where nobody leads the queue."""
    return fence.args if fence is not None else ("", "", "")

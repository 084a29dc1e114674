"""One look at many queues (``lua/queue_look.lua``), all of it in one flush a hundred queues.

Counts that the server has at hand are exact. Lanes are looked at up to a bound; where there are more, what they hold is
at least what is told (`more_lanes`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from emq_ops.passes.lease.owner import LeaseInfo, lease_info_of
from emq_ops.protocol.errors import EmqError
from emq_ops.protocol.ids import is_valid, parse
from emq_ops.protocol.key_names import queue_of_key
from emq_ops.protocol.keyspace import EVERY_KEY_BUT_JOBS, keys_of
from emq_ops.protocol.scores import score_ms
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Arg, Server

MOST_LANES = 10_000
"""So many lanes of a queue are looked at: a few milliseconds of the server's time where there are as many."""
FLUSH = 100
"""Queues a round trip."""
COMPLETIONS = "completions"


@dataclass(frozen=True, slots=True)
class StreamLook:
    """An event stream: how many records it holds, when the newest was made (unix ms, None: never one), and how far
    behind it the archive's watermark stands (ms; None where nobody archives it)."""

    name: str
    length: int
    newest_ms: int | None
    lag_ms: int | None


@dataclass(frozen=True, slots=True)
class QueueLook:
    """A queue as it stood at `now_ms` (the server's clock; every instant is in unix ms, None where there is none).

    Jobs by place: `pending` (flat), `in_lanes` (at least so many where there are `more_lanes` than were looked at),
    `active`, `scheduled`, `dead`; `first`: the id of the first of `pending`, '' where there is none. `lanes` with
    work, `lanes_full`: those of them at their limit. `oldest_flat_ms`, `oldest_lane_ms`: when the waiting job with
    the lowest id was minted; `deadline_ms`: of the lease that lapses first, `lapsed`: leases that have; `due_ms`:
    of the scheduled job that is due first, `overdue`: those that are; `repeat_ms`, `repeat`: the repeatable that is
    due first. `ceiling`, `rate`: None where there is none. `aside`: how many members our scripts set aside.
    `lease`: ours, as it was found. `damage`: keys that are not as the wire says.
    """

    queue: str
    now_ms: int
    pending: int
    active: int
    scheduled: int
    dead: int
    paused: bool
    ceiling: int | None
    rate: int | None
    in_lanes: int
    lanes: int
    lanes_full: int
    lanes_paused: int
    more_lanes: bool
    first: bytes
    oldest_flat_ms: int | None
    oldest_lane_ms: int | None
    deadline_ms: int | None
    lapsed: int
    due_ms: int | None
    overdue: int
    repeat_ms: int | None
    repeat: str
    completed: int
    failed: int
    aside: int
    lease: LeaseInfo | None
    damage: tuple[str, ...]
    streams: tuple[StreamLook, ...]

    @property
    def waiting(self) -> int:
        """Jobs that could be claimed, in lanes or not."""
        return self.pending + self.in_lanes

    @property
    def ended(self) -> int:
        """How many jobs ended ever."""
        return self.completed + self.failed

    @property
    def oldest_ms(self) -> int | None:
        """When the oldest waiting job was minted."""
        known = [at for at in (self.oldest_flat_ms, self.oldest_lane_ms) if at is not None]
        return min(known, default=None)

    @property
    def leader(self) -> str:
        """Who leads the queue now, '' for nobody."""
        return str(self.lease.holder) if self.lease is not None and self.lease.stands else ""

    @property
    def lag_ms(self) -> int | None:
        """How far the archive is behind, of the stream that waits longest; None where none is archived."""
        return max((one.lag_ms for one in self.streams if one.lag_ms is not None), default=None)


def live_queues(server: Server) -> list[str]:
    """The queues that have a key of their own on the server besides rows and lanes, sorted. The server passes over
    rows, so that only the names of queues travel."""
    heads = {key[: key.find(b"}:") + 2] for key in server.scan(EVERY_KEY_BUT_JOBS, count=5000)}
    found = {queue_of_key(head + b"*") for head in heads}
    return sorted(name for name in found if name is not None)


def look_at_queues(
    server: Server, queues: Iterable[str], streams: Mapping[str, Sequence[str]] | None = None
) -> Iterator[QueueLook | tuple[str, EmqError]]:
    """A look at each queue, in order; the queue and the error where one could not be read. `streams`: those of each
    queue that are archived; `completions` is always among them."""
    script = load("queue_look")
    named = streams or {}
    wanted = list(queues)
    for some in (wanted[first : first + FLUSH] for first in range(0, len(wanted), FLUSH)):
        asked = [list(dict.fromkeys((COMPLETIONS, *named.get(queue, ())))) for queue in some]
        calls = [call_of(queue, names) for queue, names in zip(some, asked, strict=True)]
        for queue, names, reply in zip(some, asked, server.run_many(script, calls, readonly=True), strict=True):
            yield (queue, reply) if isinstance(reply, EmqError) else _look(queue, names, reply)


def call_of(queue: str, streams: Sequence[str]) -> tuple[Sequence[str], Sequence[Arg]]:
    """The keys and arguments of a look at one queue."""
    k = keys_of(queue)
    keys = [k.pending, k.active, k.schedule, k.dead, k.meta, k.ring, k.paused, k.glimit, k.gactive, k.repeat]
    return [*keys, k.completed, k.failed, k.lease, k.aside], [k.base, MOST_LANES, *streams]


def _look(queue: str, names: Sequence[str], reply: list[Any]) -> QueueLook:
    now = int(reply[0])
    flat_lease = reply[24]
    return QueueLook(
        queue=queue,
        now_ms=now,
        pending=reply[1],
        active=reply[2],
        scheduled=reply[3],
        dead=reply[4],
        paused=reply[5] == 1,
        ceiling=_number(reply[6]) or None,
        rate=_number(reply[7]) or None,
        in_lanes=reply[8],
        lanes=reply[9],
        lanes_full=reply[10],
        lanes_paused=reply[11],
        more_lanes=reply[12] == 1,
        first=reply[13],
        oldest_flat_ms=_minted(reply[13]),
        oldest_lane_ms=_minted(reply[14]),
        deadline_ms=_instant(reply[15]),
        lapsed=reply[16],
        due_ms=_instant(reply[17]),
        overdue=reply[18],
        repeat_ms=_instant(reply[19]),
        repeat=reply[20].decode("utf-8", "backslashreplace"),
        completed=_number(reply[21]),
        failed=_number(reply[22]),
        aside=reply[23],
        lease=lease_info_of(flat_lease, now) if any(flat_lease[1::2]) else None,
        damage=tuple(text.decode("utf-8", "backslashreplace") for text in reply[25]),
        streams=tuple(_stream(name, told) for name, told in zip(names, reply[26:], strict=True)),
    )


def _stream(name: str, told: list[Any]) -> StreamLook:
    length, last, mark = told
    newest = int(last.split(b"-")[0]) if last and last != b"0-0" else None
    archived = _minted(mark)
    lag = None if archived is None or newest is None else max(0, newest - archived)
    return StreamLook(name, length, newest, lag)


def _number(raw: bytes) -> int:
    return int(raw) if raw.isdigit() and len(raw) <= 18 else 0


def _minted(raw: bytes) -> int | None:
    text = raw.decode("ascii", "replace")
    return parse(text).unix_ms if is_valid(text) else None


def _instant(raw: bytes) -> int | None:
    return score_ms(raw) if raw else None

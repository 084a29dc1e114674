"""Consumer groups of an event stream: made, read from, acknowledged; entries taken over, kept and buried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from emq_ops.protocol import ids
from emq_ops.protocol.errors import BadInputError, ServerError
from emq_ops.protocol.queue import Queue, not_negative, positive
from emq_ops.protocol.transitions.streams import Fields, flat_fields

PAGE = 1000


@dataclass(frozen=True, slots=True)
class Member:
    """A consumer of a group: its name, and the stream."""

    stream: str
    group: str
    consumer: str

    def __post_init__(self) -> None:
        for value, what in ((self.group, "group"), (self.consumer, "consumer")):
            if not value or len(value) > 200 or not value.isprintable():
                raise BadInputError(f"a {what} is named {value[:40]!r}", fix="1 to 200 printable characters")


@dataclass(frozen=True, slots=True)
class Delivered:
    """An entry in a group's hands. `flat`: names and values in turn; None where it is trimmed by now."""

    stream_id: str
    flat: Sequence[bytes] | None


@dataclass(frozen=True, slots=True)
class StreamGroup:
    """A consumer group. `lag`: entries not delivered yet, None where the server can't tell; `oldest_ms`: how long the
    pending entry that is idle the longest has been, among the first PAGE."""

    name: str
    consumers: int
    pending: int
    last_delivered: str
    lag: int | None
    oldest_ms: int | None


def create(q: Queue, stream: str, group: str, start: str) -> bool:
    """Makes a group that begins behind the id `start` (``0``: at the head; ``$``: with what comes). False: there is
    one, which stays as it is. Makes the stream, too."""
    try:
        q.server.write("XGROUP", "CREATE", q.keys.stream(stream), group, start, "MKSTREAM")
    except ServerError as refusal:
        if refusal.code == "BUSYGROUP":
            return False
        raise
    return True


def own(q: Queue, member: Member, after: str, count: int) -> list[Delivered]:
    """What this consumer has pending behind the id `after`; each counts as delivered once more."""
    return _read(q, member, after, positive(count, "count"), block_ms=None)


def fresh(q: Queue, member: Member, count: int, *, block_ms: int | None = None) -> list[Delivered]:
    """What was delivered to nobody in the group yet. `block_ms`: waits so long for something to come."""
    return _read(q, member, ">", positive(count, "count"), block_ms=block_ms)


def _read(q: Queue, member: Member, after: str, count: int, *, block_ms: int | None) -> list[Delivered]:
    block = () if block_ms is None else ("BLOCK", positive(block_ms, "block_ms"))
    head = ("XREADGROUP", "GROUP", member.group, member.consumer, "COUNT", count, *block)
    reply = q.server.write(*head, "STREAMS", q.keys.stream(member.stream), after)
    if not reply:
        return []
    [(_, entries)] = reply.items() if isinstance(reply, dict) else reply
    return [Delivered(entry[0].decode("ascii"), entry[1]) for entry in entries]


def take_over(q: Queue, member: Member, idle_ms: int, cursor: str, count: int) -> tuple[str, list[Delivered]]:
    """Takes entries over that are idle for `idle_ms` or longer, whoever had them, from `cursor` on (``0-0`` first).
    Returns the next cursor, and them; those that were trimmed leave the list by it."""
    reply = q.server.write(
        *("XAUTOCLAIM", q.keys.stream(member.stream), member.group, member.consumer),
        *(not_negative(idle_ms, "idle_ms"), cursor, "COUNT", positive(count, "count")),
    )
    found = [Delivered(entry[0].decode("ascii"), entry[1]) for entry in reply[1] if entry is not None]
    return reply[0].decode("ascii"), found


def deliveries(q: Queue, member: Member, stream_ids: Sequence[str]) -> list[int]:
    """How often each entry was delivered so far; 0 for one that is not pending with this consumer."""
    key = q.keys.stream(member.stream)
    asked = [("XPENDING", key, member.group, one, one, 1, member.consumer) for one in stream_ids]
    return [int(found[0][3]) if found else 0 for found in q.server.read_many(asked)]


def acknowledge(q: Queue, member: Member, stream_ids: Sequence[str]) -> int:
    """Takes entries off the group's pending list, whoever has them; returns how many were on it."""
    if not stream_ids:
        return 0
    return int(q.server.write("XACK", q.keys.stream(member.stream), member.group, *stream_ids))


def keep(q: Queue, member: Member, stream_ids: Sequence[str]) -> list[str]:
    """Sets the idle time of entries in hand to 0. Returns those that are in other hands, or acknowledged, by now."""
    if not stream_ids:
        return []
    keys = [q.keys.stream(member.stream)]
    lost = q.run("stream_keep", keys, member.group, member.consumer, *stream_ids)
    return [one.decode("ascii") for one in lost]


def bury(q: Queue, member: Member, stream_id: str, dead: str, fields: Fields) -> str | None:
    """Puts a record on the stream `dead` in the place of an entry in hand, which is acknowledged in the same step.
    Returns its ``EVT`` id; None where the entry is in other hands by now, or acknowledged: nothing changed then."""
    keys = [q.keys.stream(member.stream), q.keys.stream(dead)]
    flat = flat_fields(fields)
    told = q.run("stream_bury", keys, member.group, member.consumer, stream_id, ids.node(), *flat).decode("ascii")
    return told or None


def listing(q: Queue, stream: str) -> list[StreamGroup]:
    """The groups of a stream, by name; none where there is no stream. Raises ServerError for a key of another type."""
    key = q.keys.stream(stream)
    try:
        found = [_named(one) for one in q.server.read("XINFO", "GROUPS", key)]
    except ServerError as refusal:
        if "no such key" in str(refusal):
            return []
        raise
    pending = q.server.read_many([("XPENDING", key, group[b"name"], "-", "+", PAGE) for group in found])
    return [_group(group, held) for group, held in zip(found, pending, strict=True)]


def _group(group: dict[bytes, Any], held: Sequence[Any]) -> StreamGroup:
    lag = group.get(b"lag")
    return StreamGroup(
        group[b"name"].decode("utf-8", "backslashreplace"),
        int(group[b"consumers"]),
        int(group[b"pending"]),
        group[b"last-delivered-id"].decode("ascii"),
        None if lag is None else int(lag),
        max((int(one[2]) for one in held), default=None),
    )


def _named(reply: Any) -> dict[bytes, Any]:
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))

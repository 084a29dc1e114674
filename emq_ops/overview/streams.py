"""The event streams of a queue: how long, how old, who reads them, how far they are archived."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from emq_ops.protocol.errors import DamagedError, ServerError
from emq_ops.protocol.ids import is_valid, parse, split_stream_id
from emq_ops.protocol.keyspace import glob_literal
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.transitions import groups
from emq_ops.protocol.transitions.groups import StreamGroup

_ARCHIVED = b":archived"


@dataclass(frozen=True, slots=True)
class StreamStanding:
    """A stream. Instants are unix ms, of the ids; None where there is no entry. `added`: entries ever added, None where
    the server does not say; `archived`: the watermark as it stands; `error`: why nothing can be said."""

    stream: str
    entries: int = 0
    first: str | None = None
    last: str | None = None
    last_generated: str | None = None
    added: int | None = None
    archived: str | None = None
    groups: tuple[StreamGroup, ...] = ()
    error: str | None = None

    @property
    def first_ms(self) -> int | None:
        return None if self.first is None else split_stream_id(self.first)[0]

    @property
    def last_ms(self) -> int | None:
        return None if self.last is None else split_stream_id(self.last)[0]

    @property
    def archived_ms(self) -> int | None:
        """When the newest archived record was made; None where the watermark is none, or no ``EVT`` id."""
        return parse(self.archived).unix_ms if self.archived and is_valid(self.archived) else None


def names(q: Queue) -> list[str]:
    """The streams of a queue, by name, found by a bounded SCAN."""
    head = q.keys.base + "stream:"
    found = {key for key in q.server.scan(glob_literal(head) + "*") if not key.endswith(_ARCHIVED)}
    return sorted(key[len(head.encode("utf-8")) :].decode("utf-8", "backslashreplace") for key in found)


def standings(q: Queue) -> Iterator[StreamStanding]:
    """All streams of a queue."""
    for name in names(q):
        yield standing(q, name)


def standing(q: Queue, stream: str) -> StreamStanding:
    """One stream; a key of another type is told in `error`. One that is not there has no `last_generated`."""
    mark = q.server.read("GET", q.keys.watermark(stream))
    archived = None if mark is None else mark.decode("utf-8", "backslashreplace")
    try:
        info = _named(q.server.read("XINFO", "STREAM", q.keys.stream(stream)))
    except (DamagedError, ServerError) as refusal:
        if "no such key" in str(refusal):
            return StreamStanding(stream, archived=archived)
        return StreamStanding(stream, archived=archived, error=refusal.what)
    added = info.get(b"entries-added")
    return StreamStanding(
        stream,
        int(info[b"length"]),
        _id_of(info[b"first-entry"]),
        _id_of(info[b"last-entry"]),
        info[b"last-generated-id"].decode("ascii"),
        None if added is None else int(added),
        archived,
        tuple(groups.listing(q, stream)),
    )


def _id_of(entry: Any) -> str | None:
    return None if not entry else str(entry[0].decode("ascii"))


def _named(reply: Any) -> dict[bytes, Any]:
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))

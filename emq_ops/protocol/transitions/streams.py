"""Event streams: append, read, trim, and the seam to an archive (``stream:<name>:archived``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from emq_ops.protocol import ids
from emq_ops.protocol.errors import BadInputError, EmqError
from emq_ops.protocol.queue import Queue, blob, instant, not_negative, positive
from emq_ops.protocol.server import Arg

Fields = Sequence[tuple[bytes | str, bytes | str]]
"""Names and values in order; a name may stand twice."""


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """An entry. `event`: its ``EVT`` id; `fields`: its names and values but that id's."""

    event: str
    stream_id: str
    fields: tuple[tuple[bytes, bytes], ...]


def flat_fields(fields: Fields) -> list[bytes]:
    """Names and values in turn. Raises BadInputError where there are none, or one is neither bytes nor text."""
    if not fields:
        raise BadInputError("a record has no fields", fix="give one or more names and values")
    return [blob(part, "field") for pair in fields for part in pair]


def append(q: Queue, stream: str, fields: Fields) -> str:
    """Appends a record and returns its ``EVT`` id. See append_many."""
    return append_many(q, stream, [fields])[0]


def append_many(q: Queue, stream: str, records: Sequence[Fields]) -> list[str]:
    """Appends records, all or none, and returns their ``EVT`` ids in order. The ids are settled on the server, above
    whatever the stream has generated.

    Raises DamagedError where no id can follow that one, RightsError.
    """
    if not records:
        raise BadInputError("no records", fix="give one or more")
    told = q.run("stream_append", [q.keys.stream(stream)], *_append_args(records))
    return [event.decode("ascii") for event in told]


def _append_args(records: Sequence[Fields]) -> list[Arg]:
    args: list[Arg] = [ids.node()]
    for fields in records:
        flat = flat_fields(fields)
        args += [len(flat), *flat]
    return args


CHUNK = 500
"""Records a script adds at once, all of them or none."""


def append_each(q: Queue, stream: str, records: Sequence[Fields]) -> list[str | EmqError]:
    """Appends any number of records, in their order and CHUNK by CHUNK, and tells the fate of each: its ``EVT`` id, or
    why it was not written. OutcomeUnknownError: nobody can say, look first.

    Raises BadInputError for a record without fields; then nothing is sent.
    """
    key, chunks = q.keys.stream(stream), [records[at : at + CHUNK] for at in range(0, len(records), CHUNK)]
    calls = [([key], _append_args(chunk)) for chunk in chunks]
    told: list[str | EmqError] = []
    for chunk, reply in zip(chunks, q.run_many("stream_append", calls), strict=True):
        told += [reply] * len(chunk) if isinstance(reply, EmqError) else [event.decode("ascii") for event in reply]
    return told


def append_id(q: Queue, stream: str, event: str, fields: Fields) -> str:
    """Appends a record under an id of the caller's. The server refuses one that is not above the last."""
    known = ids.parse(ids.require(event, "EVT"))
    q.server.write("XADD", q.keys.stream(stream), known.stream_id, "id", event, *flat_fields(fields))
    return event


def read(q: Queue, stream: str, first: str = "-", last: str = "+", *, count: int | None = None) -> list[StreamRecord]:
    """The entries from one stream id to another, both included."""
    limit = ("COUNT", positive(count, "count")) if count is not None else ()
    found = q.server.read("XRANGE", q.keys.stream(stream), first, last, *limit)
    return [record(entry_id, flat) for entry_id, flat in found]


def record(entry_id: bytes, flat: Sequence[bytes]) -> StreamRecord:
    """An entry as the server tells it."""
    pairs = list(zip(flat[::2], flat[1::2], strict=True))
    stream_id = entry_id.decode("ascii")
    if pairs and pairs[0][0] == b"id" and ids.is_valid(pairs[0][1]):
        return StreamRecord(pairs[0][1].decode("ascii"), stream_id, tuple(pairs[1:]))
    derived = ids.from_stream_id(stream_id)
    return StreamRecord(derived.text if derived else "", stream_id, tuple(pairs))


def window(q: Queue, stream: str, from_ms: int, to_ms: int, *, count: int | None = None) -> list[StreamRecord]:
    """The entries of [from_ms, to_ms] (unix ms). Raises BadInputError where it ends before it begins."""
    if instant(to_ms, "to_ms") < instant(from_ms, "from_ms"):
        raise BadInputError(f"the window ends at {to_ms}, before it begins at {from_ms}", fix="the earlier one first")
    return read(q, stream, ids.floor_stream_id(from_ms), ids.ceil_stream_id(to_ms), count=count)


def since(q: Queue, stream: str, from_ms: int, *, count: int | None = None) -> list[StreamRecord]:
    """The entries from an instant on (unix ms)."""
    return read(q, stream, ids.floor_stream_id(instant(from_ms, "from_ms")), count=count)


def trim_maxlen(q: Queue, stream: str, keep: int, *, approx: bool = False) -> int:
    """Removes the oldest entries but `keep` (`approx`: by whole nodes, so some more stay). Returns how many went."""
    bound = ("~" if approx else "=", not_negative(keep, "keep"))
    return int(q.server.write("XTRIM", q.keys.stream(stream), "MAXLEN", *bound))


def trim_before(q: Queue, stream: str, before_ms: int, *, approx: bool = False) -> int:
    """Removes the entries before an instant (unix ms). Returns how many went."""
    bound = ("~" if approx else "=", ids.floor_stream_id(instant(before_ms, "before_ms")))
    return int(q.server.write("XTRIM", q.keys.stream(stream), "MINID", *bound))


RETAIN_SLICE = 1000


@dataclass(frozen=True, slots=True)
class Retained:
    """What a retention did. `held_by`: what keeps entries that were to go: a consumer group, or ``archive`` (they are
    not archived yet); `from_id`: the first that is kept for it."""

    removed: int
    held_by: str | None = None
    from_id: str | None = None


def retain(
    q: Queue, stream: str, *, keep: int | None = None, before_ms: int | None = None, count_only: bool = False
) -> Retained:
    """Takes entries off the head of a stream, in slices, until `keep` stay, or none from before an instant (unix ms).
    `count_only`: tells what would go.

    Nothing goes that a consumer group has pending or was not given yet, nor what an archive is behind with: where
    ``stream:<name>:archived`` stands, what is above it stays. Raises BadInputError unless one of the two is given, and
    for a watermark that is no ``EVT`` id.
    """
    if (keep is None) == (before_ms is None):
        raise BadInputError("a retention has one bound", fix="keep, or before_ms")
    below = "" if before_ms is None else ids.floor_stream_id(instant(before_ms, "before_ms"))
    stay = None if keep is None else not_negative(keep, "keep")
    mark = get_archived(q, stream)
    edge = "" if mark is None else ids.next_stream_id(ids.parse(ids.require(mark, "EVT")).stream_id)
    by_archive = bool(edge) and (not below or ids.split_stream_id(edge) < ids.split_stream_id(below))
    removed, start, bound, how = 0, "-", edge if by_archive else below, "count" if count_only else ""
    while True:
        most = "" if stay is None else stay + (removed if count_only else 0)
        args = (most, bound, RETAIN_SLICE, start, how)
        gone, holder, floor, last = q.run("stream_retain", [q.keys.stream(stream)], *args, readonly=count_only)
        removed += int(gone)
        start = f"({last.decode('ascii')}" if count_only and last else start
        if holder:
            return Retained(removed, holder.decode("utf-8", "backslashreplace"), floor.decode("ascii"))
        if int(gone) < RETAIN_SLICE:
            return Retained(
                removed, *_archive_hold(q, stream, stay, edge, removed if count_only else 0) if by_archive else ()
            )


def _archive_hold(q: Queue, stream: str, keep: int | None, edge: str, counted: int) -> tuple[str, str] | tuple[()]:
    """Whether what is not archived yet is more than was to stay."""
    left = read(q, stream, edge, count=1)
    if not left or (keep is not None and length(q, stream) - counted <= keep):
        return ()
    return "archive", left[0].stream_id


def length(q: Queue, stream: str) -> int:
    """How many entries a stream holds; 0 where there is none."""
    return int(q.server.read("XLEN", q.keys.stream(stream)))


def put_archived(q: Queue, stream: str, event: str) -> None:
    """Sets the watermark that readers of an archive merge at."""
    q.server.write("SET", q.keys.watermark(stream), event)


def get_archived(q: Queue, stream: str) -> bytes | None:
    """The watermark, unchecked; None where there is none."""
    found: bytes | None = q.server.read("GET", q.keys.watermark(stream))
    return found


def clear_archived(q: Queue, stream: str) -> bool:
    """Takes the watermark away. False: there was none."""
    return bool(q.server.write("DEL", q.keys.watermark(stream)))

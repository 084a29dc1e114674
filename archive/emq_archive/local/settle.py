"""What of a batch is new: a record that is stored already changes nothing; other bytes under its id are a new life."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field

from emq_archive.chunk import Chunk
from emq_archive.columns import jobs_of
from emq_archive.model import Pair, Redact, StreamId
from emq_archive.redact import identities, same
from emq_archive.reports import Unstorable

MAX_RECORD_BYTES = 768 * 1024 * 1024
"""No column of ours holds more: 32-bit offsets, and what the databases take."""


def layers(chunk: Chunk) -> Iterator[Chunk]:
    """`chunk` in order, with ids that go up strictly: an id that stands in it several times comes in several layers."""
    if chunk.sorted:
        yield chunk
        return
    ids = chunk.ids()
    left = sorted(range(len(ids)), key=lambda i: (ids[i], i))
    while left:
        taken: list[int] = []
        again: list[int] = []
        for i in left:
            (again if taken and ids[taken[-1]] == ids[i] else taken).append(i)
        yield chunk.take(taken)
        left = again


@dataclass(slots=True)
class Sifted:
    """The places of a batch's records by what becomes of them; `reborn` by incarnation."""

    plain: Sequence[int] = ()
    reborn: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    known: int = 0


def sift(
    fresh: Chunk, original: Chunk, stored: Sequence[tuple[int, Chunk]], ever: Iterable[Redact], kind: str
) -> Sifted:
    """`fresh`: what would be stored, `original` the same records before redaction; `stored`: incarnation and records of
    the chunks whose ranges overlap."""
    out = Sifted()
    if not stored:
        out.plain = range(len(fresh))
        return out
    if _all_there(fresh, [chunk for _, chunk in stored]):
        out.known = len(fresh)
        return out
    wanted = fresh.ids()
    low, high = wanted[0], wanted[-1]
    there: dict[StreamId, list[tuple[int, tuple[Pair, ...]]]] = defaultdict(list)
    asked = set(wanted)
    for incarnation, chunk in stored:
        for i, stream_id in enumerate(chunk.ids()):
            if low <= stream_id <= high and stream_id in asked:
                there[stream_id].append((incarnation, chunk.fields(i)))
    redactions = list(ever)
    plain: list[int] = []
    for i, stream_id in enumerate(wanted):
        before = there.get(stream_id)
        if not before:
            plain.append(i)
            continue
        fields = original.fields(i)
        if any(same(old, fields, redactions, kind) for _, old in before):
            out.known += 1
        else:
            incarnation = max(number for number, _ in before) + 1
            out.reborn[incarnation].append(i)
    out.plain = plain
    return out


def _all_there(fresh: Chunk, stored: Sequence[Chunk]) -> bool:
    """The usual case of reading a stream from its head again, by comparing whole columns."""
    inside = []
    low, high = fresh.first, fresh.last
    for chunk in sorted(stored, key=lambda c: c.first):
        ids = chunk.ids() if chunk.first < low or chunk.last > high else None
        if ids is None:
            inside.append(chunk)
        else:
            start = next((i for i, x in enumerate(ids) if x >= low), len(ids))
            end = next((i for i in range(len(ids), start, -1) if ids[i - 1] <= high), start)
            inside.append(chunk.slice(start, end - start))
    whole = Chunk.concat([chunk for chunk in inside if len(chunk)])
    return len(whole) == len(fresh) and all(
        getattr(whole, name).equals(getattr(fresh, name)) for name in ("ms", "seq", "pairs", "names", "values")
    )


def too_large(chunk: Chunk, limit: int) -> tuple[list[int], tuple[Unstorable, ...]]:
    """The places of the records that can be stored, and those that can't."""
    limit = min(limit, MAX_RECORD_BYTES)
    kept, refused = [], []
    for i in range(len(chunk)):
        size = chunk.slice(i, 1).weight
        if size > limit:
            refused.append(Unstorable(chunk.id(i), f"{size} bytes are more than the {limit} that a record may have"))
        else:
            kept.append(i)
    return kept, tuple(refused)


def places_left(chunk: Chunk, gone: dict[bytes, StreamId]) -> list[int]:
    """The places of the records that are not of an erased job, or came after it was erased."""
    jobs = jobs_of(chunk).to_pylist()
    return [i for i, job in enumerate(jobs) if job is None or (upto := gone.get(job)) is None or chunk.id(i) > upto]


def places_not_of(chunk: Chunk, expired: Set[bytes], ever: Sequence[Redact], *, stored: bool) -> list[int]:
    """The places of the records that are none of the `expired` ones (their identities). `stored`: as they were stored,
    else as the stream has them."""
    return [
        i
        for i, stream_id in enumerate(chunk.ids())
        if identities(stream_id, chunk.fields(i), ever, stored=stored).isdisjoint(expired)
    ]

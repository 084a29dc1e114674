"""Which records of the outbox are in another host's segments already, and which have met other bytes under their id."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from emq_archive.chunk import Chunk
from emq_archive.log.commit import Segment
from emq_archive.model import Pair, Redact, StreamId
from emq_archive.redact import same
from emq_archive.segment import group_range, row_groups


@dataclass(slots=True)
class Matches:
    """Places of a chunk's records: `found` by the segment that holds them, `taken` by the highest incarnation in which
    their id has other bytes."""

    found: dict[int, Segment] = field(default_factory=dict)
    taken: dict[int, int] = field(default_factory=dict)

    def pieces(self, chunk: Chunk, incarnation: int) -> list[tuple[Chunk, int, int | None]] | None:
        """What to store in place of the chunk: records, incarnation, proving commit; None: leave it as it is."""
        by_segment: dict[tuple[int, int], list[int]] = {}
        by_incarnation: dict[int, list[int]] = {}
        for i in range(len(chunk)):
            segment = self.found.get(i)
            if segment is not None:
                by_segment.setdefault((segment.incarnation, segment.lsn), []).append(i)
                continue
            taken = self.taken.get(i, -1)
            by_incarnation.setdefault(taken + 1 if taken >= incarnation else incarnation, []).append(i)
        if not by_segment and set(by_incarnation) == {incarnation}:
            return None
        pieces: list[tuple[Chunk, int, int | None]] = [
            (chunk.take(places), number, lsn) for (number, lsn), places in by_segment.items()
        ]
        return pieces + [(chunk.take(places), number, None) for number, places in by_incarnation.items()]


class Ranged(Hashable, Protocol):
    """What names a chunk and knows its ends, such as a row of the outbox."""

    @property
    def first(self) -> StreamId: ...

    @property
    def last(self) -> StreamId: ...


K = TypeVar("K", bound=Ranged)


def compare(
    file: Any,
    segment: Segment,
    chunks: Mapping[K, Chunk],
    matches: Mapping[K, Matches],
    ever: Sequence[Redact],
    kind: str,
) -> None:
    """Looks the chunks' records up in a segment, a row group at a time, and notes what it finds in `matches`."""
    for group in range(file.num_row_groups):
        low, high = group_range(file, group)
        near = [waiting for waiting in chunks if waiting.first <= high and waiting.last >= low]
        if not near:
            continue
        there = next(row_groups(file, segment.key, [group]))
        places = {stream_id: i for i, stream_id in enumerate(there.ids())}
        for waiting in near:
            mine = chunks[waiting]
            for i, stream_id in enumerate(mine.ids()):
                at = places.get(stream_id)
                if at is None:
                    continue
                if _alike(there.fields(at), mine.fields(i), ever, kind):
                    matches[waiting].found[i] = segment
                else:
                    matches[waiting].taken[i] = max(matches[waiting].taken.get(i, -1), segment.incarnation)


def _alike(there: tuple[Pair, ...], mine: tuple[Pair, ...], ever: Sequence[Redact], kind: str) -> bool:
    return same(there, mine, ever, kind) or same(mine, there, ever, kind)

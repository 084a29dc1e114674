"""Many sorted sources of records as one, each opened only when its turn comes."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from emq_archive.model import Record, StreamId

Order = tuple[StreamId, int]


@dataclass(frozen=True, slots=True)
class SortedSource:
    """A sorted source: nothing in it is below `first`; `open` reads it."""

    first: StreamId
    open: Callable[[], Iterator[Record]]


def order(record: Record) -> Order:
    """Where a record stands: by id, then by incarnation."""
    return record.id, record.incarnation


def merge(runs: Iterable[SortedSource]) -> Iterator[Record]:
    """All records of `runs` (which come by `first`) in order; of several with one id and incarnation, the first
    source's. Only sources whose ranges overlap are open at once."""
    waiting = iter(runs)
    upcoming = next(waiting, None)
    heap: list[tuple[Order, int, Record, Iterator[Record]]] = []
    opened = 0
    done: Order | None = None
    while heap or upcoming is not None:
        while upcoming is not None and (not heap or upcoming.first <= heap[0][0][0]):
            source = upcoming.open()
            head = next(source, None)
            opened += 1
            if head is not None:
                heapq.heappush(heap, (order(head), opened, head, source))
            upcoming = next(waiting, None)
        if not heap:
            continue
        key, number, record, source = heap[0]
        if key != done:
            done = key
            yield record
        following = next(source, None)
        if following is None:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, (order(following), number, following, source))

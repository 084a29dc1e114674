"""From columns to rows of the local database: one UTC day a chunk, and not too large."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from emq_archive.arrow import pa, pc
from emq_archive.chunk import Chunk
from emq_archive.codec import id_key
from emq_archive.columns import job_ends

DAY_MS = 86_400_000
LAST_DAY = 2_932_896
"""9999-12-31: what is later is taken for it."""
MAX_RECORDS = 16_384
MAX_WEIGHT = 32 * 1024 * 1024


def day_of(ms: int) -> int:
    """The UTC day of a stream id, as days since 1970."""
    return min(ms // DAY_MS, LAST_DAY)


def by_day(chunk: Chunk) -> Iterator[tuple[int, Chunk]]:
    """Runs of one UTC day, as days since 1970; `chunk` is sorted."""
    if not len(chunk):
        return
    first, last = day_of(chunk.first[0]), day_of(chunk.last[0])
    if first == last:
        yield first, chunk
        return
    days = pc.divide(chunk.ms, pa.scalar(DAY_MS, pa.uint64()))
    runs = pc.run_end_encode(pc.min_element_wise(days, pa.scalar(LAST_DAY, pa.uint64())))
    start = 0
    for end, day in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
        yield day, chunk.slice(start, end - start)
        start = end


def parts(chunk: Chunk) -> Iterator[Chunk]:
    """Halves of halves until each is small enough for one row; a single record is taken as it is."""
    if len(chunk) > 1 and (len(chunk) > MAX_RECORDS or chunk.weight > MAX_WEIGHT):
        middle = len(chunk) // 2
        yield from parts(chunk.slice(0, middle))
        yield from parts(chunk.slice(middle, len(chunk) - middle))
    elif len(chunk):
        yield chunk


def rows_of(chunk: Chunk, *, stream: int, incarnation: int, added_ms: int, lsn: int | None) -> list[dict[str, Any]]:
    """The rows that hold a sorted chunk."""
    rows = []
    for day, whole in by_day(chunk):
        for part in parts(whole):
            job_min, job_max = job_ends(part)
            rows.append(
                {
                    "stream_id": stream,
                    "first": id_key(*part.first),
                    "last": id_key(*part.last),
                    "incarnation": incarnation,
                    "day": day,
                    "records": len(part),
                    "weight": part.weight,
                    "job_min": job_min,
                    "job_max": job_max,
                    "added_ms": added_ms,
                    "lsn": lsn,
                    "body": part.encode(),
                }
            )
    return rows

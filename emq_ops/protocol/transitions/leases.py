"""Extending leases."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from emq_ops.protocol.ids import job_id
from emq_ops.protocol.queue import Queue, positive
from emq_ops.protocol.server import Arg

CHUNK = 1000


class Extended(IntEnum):
    """What became of one extension, as the wire says it."""

    DONE = 1
    NO_ROW = -1
    NOT_ACTIVE = -3


def extend(q: Queue, job: str, token: int, lease_ms: int) -> Extended:
    """Extends one lease to the server's now + `lease_ms`. Raises StaleTokenError."""
    keys = [q.keys.active, q.keys.row(job)]
    args = (job_id(job), positive(token, "token"), positive(lease_ms, "lease_ms"))
    return Extended(int(q.run("extend", keys, *args)))


def extend_many(q: Queue, held: Sequence[tuple[str, int]], lease_ms: int) -> list[str]:
    """Extends many leases as the reference does (no membership check); returns the ids that were not, in order.

    It would put a swept job back into active: a lease keeper uses `keep`.
    """
    return _many(q, "extend_many", held, lease_ms)


def keep(q: Queue, held: Sequence[tuple[str, int]], lease_ms: int) -> list[str]:
    """Extends held leases that are still in active under their token and freshens their ``:lock`` (twice the lease).

    Returns the ids whose lease is gone, in order; one that left active is never put back, and a longer lease is never
    shortened.
    """
    return _many(q, "keep", held, lease_ms)


def keep_native(q: Queue, held: Sequence[tuple[str, int]], lease_ms: int) -> list[str]:
    """As keep, by the module's ``EMQ.EXTEND`` inside the script. Raises ServerError where the server has none."""
    return _many(q, "keep_native", held, lease_ms)


def _many(q: Queue, script: str, held: Sequence[tuple[str, int]], lease_ms: int) -> list[str]:
    positive(lease_ms, "lease_ms")
    pairs: list[list[Arg]] = [[job_id(job), positive(token, "token")] for job, token in held]
    lost: list[str] = []
    for first in range(0, len(pairs), CHUNK):
        flat = [value for pair in pairs[first : first + CHUNK] for value in pair]
        lost += [i.decode("ascii") for i in q.run(script, [q.keys.active], q.keys.base, lease_ms, *flat)]
    return lost

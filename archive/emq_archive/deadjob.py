"""A dead job as a record, and its digest as ``lua/lib/dead.lua`` makes it.

Imports little: whoever only compares needs nothing of what archiving needs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from emq_archive.model import Pair, RawEntry, StreamId, show_id
from emq_ops.protocol import ids
from emq_ops.protocol.errors import BadInputError

_LED = [b"%d:" % size for size in range(1024)]
MAX_DEAD_ATTEMPTS = (1 << 26) - 1
MAX_DEAD_STALLS = (1 << 16) - 1


def dead_id(job: str | ids.BrandedId, attempts: int, stalls: int) -> StreamId:
    """The id of a dead job's record, made of its identity alone, so that every host makes the same:
    ms = the job's mint time, seq = low 22 bits of its snowflake, 26 bits attempts, 16 bits stalls.

    A job that dies again has another id; one archived twice has the same. Raises BadInputError for what is no
    ``JOB`` id or does not fit.
    """
    branded = ids.parse(ids.job_id(job)) if isinstance(job, str) else job
    if not 0 <= attempts <= MAX_DEAD_ATTEMPTS or not 0 <= stalls <= MAX_DEAD_STALLS:
        raise BadInputError(f"attempts {attempts} or stalls {stalls} of {job} do not fit", fix="look at the row")
    low = branded.snowflake & ids.MAX_LOW
    return branded.unix_ms, low << 42 | attempts << 16 | stalls


def dead_fields(job: str, row: Sequence[Pair], logs: Sequence[bytes], facts: Sequence[Pair] = ()) -> list[bytes]:
    """A dead job's record, name and value in turn: ``job``, the row's fields as ``row:<name>``, its log lines as
    ``log`` (oldest first), what is known of its death (``seen_at`` unix ms, ``cause`` ...) as ``fact:<name>``."""
    flat: list[bytes] = [b"job", job.encode("ascii")]
    for name, value in row:
        flat.append(b"row:" + name)
        flat.append(value)
    for line in logs:
        flat.append(b"log")
        flat.append(line)
    for name, value in facts:
        flat.append(b"fact:" + name)
        flat.append(value)
    return flat


def dead_entry(
    job: str, row: Sequence[Pair], logs: Sequence[bytes], facts: Sequence[Pair] = (), *, attempts: int, stalls: int
) -> RawEntry:
    """A dead job as an entry that `SqlStore.add` takes."""
    return [show_id(dead_id(job, attempts, stalls)).encode("ascii"), dead_fields(job, row, logs, facts)]


def dead_digest(values: Sequence[bytes | None], logs: Sequence[bytes]) -> str:
    """The digest of ``lua/lib/dead.lua``: over the values of a row's fields in the caller's order (None: not there)
    and the log lines, oldest first. 40 hex digits."""
    parts: list[bytes] = []
    for value in values:  # by the hundred thousand in one trim: no formatting where there is a text made already
        if value is None:
            parts.append(b"-")
        else:
            size = len(value)
            parts += (_LED[size] if size < 1024 else b"%d:" % size, value)
    parts.append(b"*")
    if logs:
        parts += [b"%d:%b" % (len(line), line) for line in logs]
    return hashlib.sha1(b"".join(parts), usedforsecurity=False).hexdigest()

"""A job's id that names nothing: which jobs have one like it."""

from __future__ import annotations

from collections.abc import Sequence

from emq_ops.policy.words import near_names
from emq_ops.protocol.errors import BadInputError, EmqError, one_line
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server

QUEUES = 100
EACH = 50
"""So many ids of so many queues are looked at, from each end, and of those minted within seconds."""
_SECONDS = 8
"""Characters that ids of the same quarter of a minute share."""


def unknown_job(server: Server, job: str, queues: Sequence[str], fix: str) -> BadInputError:
    """The error for a job that nothing knows, with ids like it; `fix`: what to do where there are none."""
    where = queues[0] if len(queues) == 1 else None
    return BadInputError(f"no job {one_line(job[:80])}", where=where, fix=_near(server, job, queues) or fix)


def _near(server: Server, job: str, queues: Sequence[str]) -> str:
    keys = [Queue(server, queue).keys for queue in queues[:QUEUES]]
    stem = job[:_SECONDS].encode("utf-8", "backslashreplace")
    calls: list[tuple[str | bytes | int, ...]] = []
    for key in (key for one in keys for key in (one.pending, one.dead)):
        calls.append(("ZRANGEBYLEX", key, b"[" + stem, b"[" + stem + b"\xff", "LIMIT", 0, EACH))
    for key in (key for one in keys for key in (one.pending, one.dead, one.active, one.schedule)):
        calls += [("ZRANGE", key, 0, EACH - 1), ("ZRANGE", key, 0, EACH - 1, "REV")]
    found = [reply for reply in server.read_each(calls) if not isinstance(reply, EmqError)]
    return near_names(job, {raw.decode("utf-8", "backslashreplace") for reply in found for raw in reply})

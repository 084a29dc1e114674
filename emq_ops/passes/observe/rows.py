"""What job rows say: counts, tokens, and dead jobs read whole in bounded replies."""

from __future__ import annotations

from collections.abc import Sequence

from emq_ops.database.statements import pages
from emq_ops.protocol.keyspace import Keys
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Server

FLOW_BOOKS = ("dependencies", "processed", "failed", "unsuccessful")
_READ_BUDGET = 4 * 1024 * 1024


def number_of(value: bytes | None, default: int) -> int:
    """A count of a row, or `default` where it is absent or none."""
    return int(value) if value is not None and value.isdigit() and len(value) <= 18 else default


def token_of(attempts: bytes | None) -> int | None:
    """A row's attempts as a token, None on a ghost or a row without."""
    return int(attempts) if attempts is not None and attempts.isdigit() and len(attempts) <= 18 else None


def read_dead(server: Server, keys: Keys, jobs: Sequence[str]) -> dict[str, tuple[list[bytes], list[bytes]]]:
    """Row and logs of those jobs that are dead, in bounded replies; others, and damaged ones, are left out."""
    found: dict[str, tuple[list[bytes], list[bytes]]] = {}
    todo = list(jobs)
    while todo:
        page = todo[:500]
        replies = server.run(load("dead_read"), [keys.dead], [keys.base, _READ_BUDGET, *page], readonly=True)
        for job, reply in zip(page, replies, strict=False):
            if reply[0] == 1:
                found[job] = (reply[1], reply[2])
        todo = todo[len(replies) :]
    return found


def flow_parents(server: Server, keys: Keys, jobs: Sequence[str]) -> dict[str, bool]:
    """Those of `jobs` that have books of a flow parent; True where failed children are on them."""
    parents: list[str] = []
    for page in pages(jobs):
        books = [[keys.book(job, book) for book in FLOW_BOOKS] for job in page]
        if server.read("EXISTS", *(key for of_job in books for key in of_job)):  # hardly ever
            found = server.read_many([("EXISTS", *of_job) for of_job in books])
            parents += [job for job, count in zip(page, found, strict=True) if count]
    failed = server.read_many([("EXISTS", keys.book(job, "failed")) for job in parents])
    return {job: count == 1 for job, count in zip(parents, failed, strict=True)}

"""What the rows and logs of dead jobs were: a snapshot beside each death."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, select

from emq_ops.database.statements import pages, upsert
from emq_ops.ledger.erased import erased_jobs
from emq_ops.ledger.schema import deaths, snapshots


def rows_of(
    connection: Connection, queue: str, kept: Mapping[str, tuple[bytes, bytes | None]]
) -> Iterator[list[dict[str, Any]]]:
    """Rows of `snapshots` for the open deaths of these jobs, some hundred at a time; erased jobs are left out."""
    emptied = select(erased_jobs.c.job).where(erased_jobs.c.queue == queue)
    for page in pages(list(kept)):
        wanted = select(deaths.c.job, deaths.c.id).where(
            deaths.c.queue == queue, deaths.c.gone_ms.is_(None), deaths.c.job.in_(page), deaths.c.job.not_in(emptied)
        )
        found = connection.execute(wanted).all()
        if found:
            yield [{"death": number, "body": kept[job][0], "seal": kept[job][1]} for job, number in found]


def replace_snapshots(connection: Connection, queue: str, kept: Mapping[str, tuple[bytes, bytes | None]]) -> None:
    """Puts these snapshots (job -> body and fingerprint) in place of those that the open deaths have."""
    for rows in rows_of(connection, queue, kept):
        upsert(connection, snapshots, rows)


def kept(connection: Connection, queue: str, jobs: Sequence[str]) -> dict[str, bytes]:
    """The snapshots of the open deaths of these jobs; those that have none are left out."""
    found: dict[str, bytes] = {}
    for page in pages(jobs):
        wanted = (
            select(deaths.c.job, snapshots.c.body)
            .join(snapshots, snapshots.c.death == deaths.c.id)
            .where(deaths.c.queue == queue, deaths.c.gone_ms.is_(None), deaths.c.job.in_(page))
        )
        found.update((job, body) for job, body in connection.execute(wanted).all())
    return found

"""Jobs that were erased: nothing of their contents is kept again, whoever sees them next."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import BigInteger, Column, Connection, String, Table, select

from emq_ops.database.statements import BRANDED_ID, among, insert
from emq_ops.ledger.schema import metadata

erased_jobs = Table(
    "erased_jobs",
    metadata,
    Column("queue", String(255), primary_key=True),
    Column("job", BRANDED_ID, primary_key=True),
    Column("at_ms", BigInteger, nullable=False),  # host clock
)


def note_erased(connection: Connection, queue: str, job: str, at_ms: int) -> None:
    """Records that the job is erased, for good."""
    row = {"queue": queue, "job": job, "at_ms": at_ms}
    connection.execute(insert(connection, erased_jobs).on_conflict_do_nothing(), [row])


def erased_among(connection: Connection, queue: str, jobs: Sequence[str]) -> set[str]:
    """Those of `jobs` that were erased."""
    if not jobs:
        return set()
    wanted = select(erased_jobs.c.job).where(erased_jobs.c.queue == queue, among(connection, erased_jobs.c.job, jobs))
    return set(connection.execute(wanted).scalars())

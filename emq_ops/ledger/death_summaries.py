"""Deaths summed up for an overview: the newest, by cause, their errors."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, func, select

from emq_ops.database.statements import among
from emq_ops.ledger.schema import deaths


def newest(connection: Connection, queues: Sequence[str]) -> dict[str, int]:
    """When the newest job that the ledger has as dead now was first seen so, by queue; those without are left out."""
    wanted = select(deaths.c.queue, func.max(deaths.c.first_seen_ms)).where(
        among(connection, deaths.c.queue, queues), deaths.c.gone_ms.is_(None)
    )
    return {queue: int(at_ms) for queue, at_ms in connection.execute(wanted.group_by(deaths.c.queue))}


def causes_since(connection: Connection, queue: str, since_ms: int) -> dict[str, int]:
    """How many jobs of the queue were first seen dead at `since_ms` or later, by cause, whatever became of them."""
    wanted = select(deaths.c.cause, func.count()).where(deaths.c.queue == queue, deaths.c.first_seen_ms >= since_ms)
    return {cause: int(count) for cause, count in connection.execute(wanted.group_by(deaths.c.cause))}


def errors_of(connection: Connection, queue: str, jobs: Sequence[str], by: str) -> dict[str, bytes]:
    """What those of `jobs` died of that run `by` let go; without those of which no error is kept."""
    wanted = select(deaths.c.job, deaths.c.last_error).where(
        deaths.c.queue == queue, among(connection, deaths.c.job, jobs), deaths.c.gone_by == by
    )
    return {job: error for job, error in connection.execute(wanted.order_by(deaths.c.id)) if error is not None}

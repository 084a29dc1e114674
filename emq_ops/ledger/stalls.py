"""Every lapsed lease that a sweep of ours settled: what-if replays them, and a job's life tells them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import BigInteger, Column, Connection, Index, String, Table

from emq_ops.database.records import Records
from emq_ops.database.statements import BRANDED_ID, SERIAL, equal, follow
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.schema import metadata

stalls = Table(
    "stalls",
    metadata,
    Column("id", SERIAL, primary_key=True, autoincrement=True),
    Column("queue", String(255), nullable=False),
    Column("job", BRANDED_ID, nullable=False),
    Column("attempts", BigInteger, nullable=False),  # the token of the lease; -1 on a ghost
    Column("at_ms", BigInteger, nullable=False),
    Column("deadline_ms", BigInteger, nullable=False),
    Column("outcome", String(16), nullable=False),  # recovered, dead, exempt, forced, ghost
    Column("stalls", BigInteger, nullable=False),
    Column("evidence", String(64), nullable=False),
    Column("interruption", SERIAL),
    Column("run", BRANDED_ID, nullable=False),
    Index("stalls_by_job", "job", "id"),
    Index("stalls_by_run", "run", "id"),
    Index("stalls_by_time", "at_ms"),
)

RECOVERED, DEAD, EXEMPT, FORCED, GHOST = "recovered", "dead", "exempt", "forced", "ghost"


@dataclass(frozen=True, slots=True)
class Stall:
    """One lapsed lease. `at_ms`: when it was settled, `deadline_ms`: when it had lapsed (server clock). `outcome`:
    recovered or dead (counted), exempt (recovered, not counted), forced (counted although exempt: too often in a row),
    ghost (no row). `stalls`: the row's count afterwards."""

    job: str
    attempts: int
    at_ms: int
    deadline_ms: int
    outcome: str
    stalls: int
    evidence: str
    interruption: int | None
    run: str
    queue: str = ""
    id: int = 0

    @property
    def counted(self) -> bool:
        return self.outcome in (RECOVERED, DEAD, FORCED)


_STALLS = Records(stalls, Stall)


def note(connection: Connection, queue: str, settled: Sequence[Stall]) -> None:
    """Records what a slice settled; the caller sees to it that it is recorded once."""
    if settled:
        rows = [{**_STALLS.values(one, but=["id"]), "queue": queue} for one in settled]
        connection.execute(stalls.insert(), rows)


def iterate(ledger: Ledger, *, queue: str | None = None, job: str | None = None, page: int = 2000) -> Iterator[Stall]:
    """In the order they were recorded, in bounded pages."""
    wanted = equal(_STALLS.select, stalls, queue=queue, job=job)
    yield from map(_STALLS.of, follow(ledger, wanted, stalls.c.id, page))


def by_job(ledger: Ledger, queue: str, *, page: int = 2000) -> Iterator[list[Stall]]:
    """The stalls of each job of a queue, oldest first; jobs by id. Memory is bounded by one page and one job."""
    after: tuple[str, int] = ("", 0)
    wanted = _STALLS.select.where(stalls.c.queue == queue).order_by(stalls.c.job, stalls.c.id).limit(page)
    group: list[Stall] = []
    while True:
        beyond = (stalls.c.job > after[0]) | ((stalls.c.job == after[0]) & (stalls.c.id > after[1]))
        with ledger.read() as connection:
            found = _STALLS.all(connection, wanted.where(beyond))
        for one in found:
            if group and group[0].job != one.job:
                yield group
                group = []
            group.append(one)
        if len(found) < page:
            if group:
                yield group
            return
        after = (found[-1].job, found[-1].id)

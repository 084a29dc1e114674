"""What people did to selected jobs: each act is a run, and each job in it an item, planned before anything is touched.

So a run that was killed is resumed where it stood, and a removal can be undone: its items keep the jobs whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Index,
    LargeBinary,
    String,
    Table,
    bindparam,
    func,
    select,
    update,
)

from emq_ops.database.records import Records
from emq_ops.database.statements import BRANDED_ID, follow, insert, pages
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.schema import metadata, runs
from emq_ops.ledger.snapshot import JobSnapshot, pack, unpack

act_items = Table(
    "act_items",
    metadata,
    Column("run", BRANDED_ID, primary_key=True),
    Column("job", BRANDED_ID, primary_key=True),
    Column("attempts", BigInteger, nullable=False),
    Column("stalls", BigInteger, nullable=False),
    Column("status", String(16), nullable=False),  # planned, done, or why it was left
    Column("at_ms", BigInteger, nullable=False),
    Column("whole", LargeBinary),
    Column("undone_by", BRANDED_ID),
    Index("act_items_by_job", "job"),
    Index("act_items_by_time", "at_ms"),
)

REQUEUE, REMOVE, UNDO, REHYDRATE = "requeue", "remove", "undo", "rehydrate"
DRAIN, EDIT, MOVE = "drain", "edit", "move"
"""Kinds of runs."""
PLANNED, DONE, WITHDRAWN = "planned", "done", "withdrawn"


@dataclass(frozen=True, slots=True)
class Item:
    """A job of an act. `attempts`, `stalls`: as they were when it was selected. `status`: planned, done, or why it was
    left: alive, changed, held, child, parent, damaged, gone, exists. `at_ms`: when that was noted (host clock)."""

    run: str
    job: str
    attempts: int
    stalls: int
    status: str
    at_ms: int
    undone_by: str | None = None


_ITEMS = Records(act_items, Item)


def plan(connection: Connection, run: str, jobs: Iterable[tuple[str, int, int]], at_ms: int) -> None:
    """Notes the jobs (id, attempts, stalls) that a run is about to touch."""
    rows = [
        {"run": run, "job": job, "attempts": attempts, "stalls": stalls, "status": PLANNED, "at_ms": at_ms}
        for job, attempts, stalls in jobs
    ]
    if rows:
        connection.execute(insert(connection, act_items).on_conflict_do_nothing(), rows)


def planned(connection: Connection, run: str, limit: int) -> list[Item]:
    """The next items of a run that nothing became of yet, by job."""
    wanted = _ITEMS.select.where(act_items.c.run == run, act_items.c.status == PLANNED)
    return _ITEMS.all(connection, wanted.order_by(act_items.c.job).limit(limit))


def settle(
    connection: Connection,
    run: str,
    outcomes: Mapping[str, str],
    at_ms: int,
    wholes: Mapping[str, JobSnapshot] | None = None,
) -> None:
    """Notes what became of items (job -> status), and the jobs that were taken away, whole."""
    kept = wholes or {}
    rows = [
        {"_job": job, "_status": status, "_whole": pack(kept[job]) if job in kept else None}
        for job, status in outcomes.items()
    ]
    if rows:
        statement = update(act_items).where(act_items.c.run == run, act_items.c.job == bindparam("_job"))
        # Settled again after a kill, a job may be with us already, and on the server no longer.
        whole = func.coalesce(bindparam("_whole", type_=LargeBinary), act_items.c.whole)
        connection.execute(statement.values(status=bindparam("_status"), whole=whole, at_ms=at_ms), rows)


def totals(connection: Connection, run: str) -> dict[str, int]:
    """How many items of a run have which status."""
    wanted = select(act_items.c.status, func.count()).where(act_items.c.run == run).group_by(act_items.c.status)
    return {status: int(count) for status, count in connection.execute(wanted)}


def removed(ledger: Ledger, run: str, *, page: int = 100) -> Iterator[tuple[Item, JobSnapshot | None]]:
    """The jobs that a run took away and that nobody brought back yet, whole (None: retention let that go)."""
    wanted = _ITEMS.select.add_columns(act_items.c.whole).where(
        act_items.c.run == run, act_items.c.status == DONE, act_items.c.undone_by.is_(None)
    )
    for row in follow(ledger, wanted, act_items.c.job, page):
        yield _ITEMS.of(row), unpack(row["whole"]) if row["whole"] is not None else None


def landed(ledger: Ledger, run: str, *, page: int = 100) -> Iterator[tuple[Item, JobSnapshot | None]]:
    """The jobs that a move took away and brought to where it moves them, each as it was before (None: retention let
    that go)."""
    wanted = _ITEMS.select.add_columns(act_items.c.whole).where(
        act_items.c.run == run, act_items.c.status == DONE, act_items.c.undone_by == run
    )
    for row in follow(ledger, wanted, act_items.c.job, page):
        yield _ITEMS.of(row), unpack(row["whole"]) if row["whole"] is not None else None


def take_again(connection: Connection, run: str, wholes: Mapping[str, JobSnapshot]) -> None:
    """Notes that jobs that a move had brought elsewhere are with us again, whole."""
    rows = [{"_job": job, "_whole": pack(whole)} for job, whole in wholes.items()]
    if rows:
        statement = update(act_items).where(act_items.c.run == run, act_items.c.job == bindparam("_job"))
        whole = bindparam("_whole", type_=LargeBinary)
        connection.execute(statement.values(whole=whole, undone_by=None), rows)


def mark_undone(connection: Connection, run: str, jobs: Sequence[str], by: str) -> None:
    """Notes that `by` brought these jobs back."""
    for page in pages(jobs):
        statement = update(act_items).where(act_items.c.run == run, act_items.c.job.in_(page))
        connection.execute(statement.values(undone_by=by))


def of_job(ledger: Ledger, job: str) -> list[Item]:
    """Every act on a job, oldest first."""
    with ledger.read() as connection:
        return _ITEMS.all(connection, _ITEMS.select.where(act_items.c.job == job).order_by(act_items.c.run))


def last_snapshot(ledger: Ledger, queue: str, job: str) -> JobSnapshot | None:
    """The job as the newest act on that queue took it away; None where none did."""
    wanted = (
        select(act_items.c.whole)
        .join(runs, runs.c.id == act_items.c.run)
        .where(act_items.c.job == job, runs.c.queue == queue, runs.c.kind != EDIT, act_items.c.whole.is_not(None))
    )
    with ledger.read() as connection:
        found = connection.execute(wanted.order_by(act_items.c.run.desc()).limit(1)).scalar()
    return unpack(found) if found is not None else None


def withdraw(connection: Connection, run: str, at_ms: int) -> int:
    """Nothing more becomes of the items of a run that were only planned; answers how many."""
    statement = update(act_items).where(act_items.c.run == run, act_items.c.status == PLANNED)
    return int(connection.execute(statement.values(status=WITHDRAWN, at_ms=at_ms)).rowcount)

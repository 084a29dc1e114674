"""Deaths: each time that a job was seen dead, why, by which pass, and what became of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, bindparam, exists, func, outerjoin, select, update

from emq_ops.database.records import Records
from emq_ops.database.statements import among, equal, follow, insert, pages
from emq_ops.ledger.contents import rows_of
from emq_ops.ledger.erased import erased_among
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.schema import deaths, snapshots
from emq_ops.ledger.snapshot import JobSnapshot, unpack_death

STALLED, ERROR, FLOW, UNKNOWN = "stalled", "error", "flow", "unknown"
TRIMMED, REVIVED, REMOVED, VANISHED, COMPLETED = "trimmed", "revived", "removed", "vanished", "completed"
NO_ATTEMPTS = -1


@dataclass(frozen=True, slots=True)
class Death:
    """What is recorded when a job is seen dead.

    `attempts` is -1 where the row says none. `first_seen_ms` is server time. `killed_by`: our pass that dead-lettered
    it, None where somebody else did; `found_by`: the pass that saw it. Of the lease that lapsed: `deadline_ms`,
    `epoch`, the `evidence` on which it was counted, and the `interruption` that it may belong to. `flow`: it
    has books of a flow parent. `snapshot`: see `snapshot.pack_death`; None where the row was gone before it could be
    read. `fingerprint`: see `snapshot.fingerprint`; None where nobody made one.
    """

    job: str
    attempts: int
    stalls: int
    first_seen_ms: int
    cause: str = UNKNOWN
    last_error: bytes | None = None
    killed_by: str | None = None
    found_by: str | None = None
    deadline_ms: int | None = None
    epoch: str | None = None
    evidence: str | None = None
    interruption: int | None = None
    flow: bool = False
    snapshot: bytes | None = None
    fingerprint: bytes | None = None


@dataclass(frozen=True, slots=True)
class Recorded(Death):
    """A death as the ledger has it, with what became of it (`gone_ms` None: still dead, as far as we know)."""

    id: int = 0
    queue: str = ""
    gone_ms: int | None = None
    gone_how: str | None = None
    gone_by: str | None = None

    def contents(self) -> JobSnapshot:
        """The row and logs as they were; empty where they could not be read, or retention let them go."""
        return unpack_death(self.snapshot) if self.snapshot is not None else JobSnapshot()


_DEATHS = Records(deaths, Recorded)


def cause_of(last_error: bytes | None, stalls: int, *, flow: bool = False) -> str:
    """Why a job is dead, by what its row says. `flow`: it is a flow parent with failed children on its books."""
    if last_error == b"stalled":
        return STALLED
    if last_error is not None:
        return ERROR
    return FLOW if flow else STALLED if stalls > 0 else UNKNOWN


@dataclass(frozen=True, slots=True)
class KnownDeath:
    """What the ledger knows of a job that is dead: see `Death`."""

    attempts: int
    stalls: int
    first_seen_ms: int
    cause: str
    killed_by: str | None
    deadline_ms: int | None
    evidence: str | None
    interruption: int | None


def _open(connection: Connection, queue: str, jobs: Sequence[str], names: Sequence[str]) -> Iterator[Row[Any]]:
    """The job and the columns of these names, of each of these jobs that the ledger has as dead now."""
    columns = [deaths.c[name] for name in ("job", *names)]
    for page in pages(jobs):
        wanted = select(*columns).where(deaths.c.queue == queue, deaths.c.gone_ms.is_(None), deaths.c.job.in_(page))
        yield from connection.execute(wanted)


def known(connection: Connection, queue: str, jobs: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Of these jobs, those that the ledger has as dead now: attempts and stalls."""
    return {row.job: (row.attempts, row.stalls) for row in _open(connection, queue, jobs, ("attempts", "stalls"))}


def known_deaths(connection: Connection, queue: str, jobs: Sequence[str]) -> dict[str, KnownDeath]:
    """The same, with all that is known of them."""
    names = tuple(KnownDeath.__dataclass_fields__)
    return {row.job: KnownDeath(*tuple(row)[1:]) for row in _open(connection, queue, jobs, names)}


def ages(connection: Connection, queue: str, jobs: Sequence[str]) -> dict[tuple[str, int, int], int]:
    """When each of these deaths (job, attempts, stalls) was first seen; those that are not known are left out."""
    found = _open(connection, queue, jobs, ("attempts", "stalls", "first_seen_ms"))
    return {(row.job, row.attempts, row.stalls): row.first_seen_ms for row in found}


def record(connection: Connection, queue: str, seen: Sequence[Death]) -> int:
    """Records deaths; one that is known is only told who killed it, if that was not known. A job that died again
    (other attempts or stalls) gets a new row, and its old one is marked revived. Of an erased job no contents are kept.
    Returns how many are new."""
    jobs = [death.job for death in seen]
    before, emptied = known(connection, queue, jobs), erased_among(connection, queue, jobs)
    seen = [replace(death, last_error=None, snapshot=None) if death.job in emptied else death for death in seen]
    fresh = [death for death in seen if before.get(death.job) != (death.attempts, death.stalls)]
    over = _seen_to_the_end(connection, queue, fresh)
    fresh = [death for death in fresh if death.job not in over]
    again = [death for death in fresh if death.job in before]
    if again:
        now = max(death.first_seen_ms for death in again)
        close(connection, queue, [death.job for death in again], REVIVED, now)
    if fresh:
        new = insert(connection, deaths).on_conflict_do_nothing()
        connection.execute(new, [{"queue": queue, **_SEEN.values(death)} for death in fresh])
        _keep_rows(connection, queue, fresh)
    new_jobs = {death.job for death in fresh}
    explained = [death for death in seen if death.killed_by is not None and death.job not in new_jobs | over.keys()]
    _explain(connection, explained, (deaths.c.queue == queue, deaths.c.job == bindparam("_job"), _OPEN))
    ended = [death for death in seen if death.job in over]
    _explain(connection, ended, (deaths.c.id == bindparam("_job"),), over)
    return len(fresh)


def _seen_to_the_end(connection: Connection, queue: str, fresh: Sequence[Death]) -> dict[str, int]:
    """Those of which somebody else has seen the death and its end already, before our pass that killed them could say
    so (its ledger was away): the job and its closed row. An earlier death of the same job was seen, and was over,
    before the lease that lapsed now. Who finds a death dates it by when he began to look: its end is looked at too."""
    killed = {death.job: death for death in fresh if death.killed_by is not None and death.deadline_ms is not None}
    found: dict[str, int] = {}
    for page in pages(list(killed)):
        columns = (
            deaths.c.job,
            deaths.c.id,
            deaths.c.attempts,
            deaths.c.stalls,
            deaths.c.first_seen_ms,
            deaths.c.gone_ms,
        )
        closed = (deaths.c.gone_ms.is_not(None), deaths.c.killed_by.is_(None))
        wanted = select(*columns).where(deaths.c.queue == queue, deaths.c.job.in_(page), *closed)
        for job, number, attempts, stalls, seen_ms, gone_ms in connection.execute(wanted):
            death = killed[job]
            since = seen_ms >= (death.deadline_ms or 0) or gone_ms >= death.first_seen_ms
            if since and (attempts, stalls) == (death.attempts, death.stalls):
                found[job] = number
    return found


def _explain(
    connection: Connection, seen: Sequence[Death], where: Iterable[ColumnElement[bool]], rows: Mapping[str, int] = {}
) -> None:
    """Says of deaths that are known who killed them and why, where nobody said so; `rows`: by their numbers."""
    if not seen:
        return
    values: dict[str, Any] = {name: bindparam(f"_{name}") for name in _EXPLAINING}
    statement = update(deaths).where(*where, deaths.c.killed_by.is_(None)).values(values)
    told = [{f"_{name}": getattr(death, name) for name in _EXPLAINING} for death in seen]
    connection.execute(statement, [{"_job": rows.get(d.job, d.job), **one} for d, one in zip(seen, told, strict=True)])


_OPEN = deaths.c.gone_ms.is_(None)
_EXPLAINING = ("cause", "killed_by", "deadline_ms", "epoch", "evidence", "interruption")
_SEEN = Records(deaths, Death)


def _keep_rows(connection: Connection, queue: str, fresh: Sequence[Death]) -> None:
    kept = {death.job: (death.snapshot, death.fingerprint) for death in fresh if death.snapshot is not None}
    for rows in rows_of(connection, queue, kept):
        connection.execute(insert(connection, snapshots).on_conflict_do_nothing(), rows)


def close(connection: Connection, queue: str, jobs: Iterable[str], how: str, at_ms: int, by: str | None = None) -> int:
    """Marks the open deaths of these jobs as gone; returns how many there were."""
    gone = 0
    for page in pages(list(jobs)):
        statement = update(deaths).where(deaths.c.queue == queue, deaths.c.gone_ms.is_(None), deaths.c.job.in_(page))
        gone += connection.execute(statement.values(gone_ms=at_ms, gone_how=how, gone_by=by)).rowcount
    return gone


def reopen(connection: Connection, queue: str, jobs: Sequence[str], by: str | None = None) -> int:
    """Takes back that these jobs are gone, by run `by` (None: by whomever): they are dead again, as they last were. One
    that has died anew since is left. Returns how many."""
    other = deaths.alias("other")
    open_too = exists().where(other.c.queue == deaths.c.queue, other.c.job == deaths.c.job, other.c.gone_ms.is_(None))
    back = 0
    for page in pages(jobs):
        newest = select(func.max(deaths.c.id)).where(deaths.c.queue == queue, deaths.c.job.in_(page))
        if by is not None:
            newest = newest.where(deaths.c.gone_by == by)
        ids = list(connection.execute(newest.group_by(deaths.c.job)).scalars())
        statement = update(deaths).where(deaths.c.id.in_(ids), ~open_too)
        back += connection.execute(statement.values(gone_ms=None, gone_how=None, gone_by=None)).rowcount
    return back


def count_gone(connection: Connection, by: str, *, queue: str | None = None, how: str | None = None) -> int:
    """How many jobs (of the queue) run `by` let go, in this way or in any."""
    wanted = select(func.count()).select_from(deaths).where(deaths.c.gone_by == by)
    return int(connection.execute(equal(wanted, deaths, queue=queue, gone_how=how)).scalar_one())


def removed_by(ledger: Ledger, run: str, size: int) -> Iterator[list[tuple[str, bytes | None]]]:
    """The jobs that a trim let go, with their snapshots (None where there is none any more), `size` at a time. Those
    that are brought back meanwhile do not come again."""
    kept = outerjoin(deaths, snapshots, snapshots.c.death == deaths.c.id)
    wanted = select(deaths.c.id, deaths.c.job, snapshots.c.body).select_from(kept).where(deaths.c.gone_by == run)
    last = 0
    while True:
        with ledger.read() as connection:
            rows = connection.execute(wanted.where(deaths.c.id > last).order_by(deaths.c.id).limit(size)).all()
        if not rows:
            return
        yield [(row.job, row.body) for row in rows]
        last = rows[-1].id


def gone_jobs(connection: Connection, queue: str, by: str, *, limit: int) -> list[str]:
    """The first jobs of the queue that run `by` let go, in the order in which they were seen dead."""
    wanted = select(deaths.c.job).where(deaths.c.queue == queue, deaths.c.gone_by == by).order_by(deaths.c.id)
    return [row.job for row in connection.execute(wanted.limit(limit))]


def count_open(connection: Connection, queue: str) -> int:
    """How many jobs of the queue the ledger has as dead now."""
    wanted = select(func.count()).select_from(deaths).where(deaths.c.queue == queue, deaths.c.gone_ms.is_(None))
    return int(connection.execute(wanted).scalar_one())


def with_open(connection: Connection, queues: Sequence[str]) -> set[str]:
    """Those of `queues` of which the ledger has a job as dead now."""
    wanted = select(deaths.c.queue).where(among(connection, deaths.c.queue, queues), deaths.c.gone_ms.is_(None))
    return set(connection.execute(wanted.distinct()).scalars())


def open_jobs(connection: Connection, queue: str, *, after: str = "", limit: int = 1000) -> list[tuple[str, int]]:
    """A page of those, by id: job and when it was first seen dead."""
    wanted = (
        select(deaths.c.job, deaths.c.first_seen_ms)
        .where(deaths.c.queue == queue, deaths.c.gone_ms.is_(None), deaths.c.job > after)
        .order_by(deaths.c.job)
        .limit(limit)
    )
    return [(job, seen) for job, seen in connection.execute(wanted).all()]


def told(connection: Connection, queue: str, jobs: Sequence[str], names: Sequence[str]) -> Sequence[Row[Any]]:
    """Of each of these jobs that the ledger has as dead now: the job, the columns of these names, and the fingerprint
    of its kept row (None where there is none)."""
    columns = [deaths.c.job, *(deaths.c[name] for name in names), snapshots.c.seal]
    here = (deaths.c.queue == queue, deaths.c.gone_ms.is_(None), among(connection, deaths.c.job, jobs))
    kept = outerjoin(deaths, snapshots, snapshots.c.death == deaths.c.id)
    return connection.execute(select(*columns).select_from(kept).where(*here)).all()


def iterate(
    ledger: Ledger,
    *,
    queue: str | None = None,
    job: str | None = None,
    run: str | None = None,
    only_open: bool = False,
    with_rows: bool = True,
    page: int = 1000,
) -> Iterator[Recorded]:
    """Deaths in the order they were recorded, in bounded pages: of a queue, a job, the pass `run` that killed it.
    Without `with_rows` snapshots are left out."""
    wanted = equal(_DEATHS.select, deaths, queue=queue, job=job, killed_by=run)
    if only_open:
        wanted = wanted.where(deaths.c.gone_ms.is_(None))
    if with_rows:
        wanted = wanted.add_columns(snapshots.c.body).outerjoin(snapshots, snapshots.c.death == deaths.c.id)
    for row in follow(ledger, wanted, deaths.c.id, page):
        found = _DEATHS.of(row)
        yield replace(found, snapshot=row["body"]) if with_rows else found

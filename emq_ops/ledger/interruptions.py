"""What was last seen of a queue's node, the interruptions of it, and who was in flight across each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, bindparam, case, func, select, update

from emq_ops.database.records import AsRow, Records
from emq_ops.database.statements import among, equal, insert, pages
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.schema import census, contacts, interruptions, vanished

RESTART, FAILOVER, OUTAGE, REWIND = "restart", "failover", "outage", "rewind"
IN_FLIGHT = "in flight"
"""What a job that vanished was; else it was dead."""


@dataclass(frozen=True, slots=True)
class Contact:
    """The last sight of the node that owns a queue's slot (times: its clock, unix ms).

    `lost`: it did not answer since. `token`: our highest lease token that it had; `went_back`: it was found with a
    lower one. `completed`, `failed`: its counters.
    `agreed_dead`, `agreed_failed`: size of the dead set and counter of failures when the ledger last agreed with the
    dead set (-1 never). `swept_ms`: when a sweep of this life last found nothing more to do; 0: none since the last
    interruption.
    """

    run_id: str
    replid: str
    seen_ms: int
    lost: bool = False
    token: int = 0
    went_back: bool = False
    completed: int = 0
    failed: int = 0
    agreed_dead: int = -1
    agreed_failed: int = -1
    swept_ms: int = 0


@dataclass(frozen=True, slots=True)
class Interruption(AsRow):
    """An interruption of a queue (times: server clock, unix ms).

    `kind`: restart, failover, outage (seen by us), rewind (the keyspace went back in time under a living server).
    `started_ms`: the last contact before it, or else when the newest job in flight across it was minted (`evidence`
    says so), None where there was neither. `census_ms`: when the census was made, None
    where nobody made one in time. `horizon_ms`: the last lease that may be of the earlier life lapses then.
    `in_flight`: members of `active` at first contact. `recovered` (counted or not), `exempted`, `died`: leases of the
    earlier life as sweeps of ours settled them. `vanished`: jobs that the ledger knew and the server lost.
    """

    queue: str
    kind: str
    run_before: str | None
    run_after: str
    started_ms: int | None
    ended_ms: int
    seen_ms: int
    census_ms: int | None = None
    horizon_ms: int = 0
    went_back: bool = False
    evidence: dict[str, Any] = field(default_factory=dict)
    in_flight: int = 0
    recovered: int = 0
    exempted: int = 0
    died: int = 0
    vanished: int = 0
    id: int = 0


@dataclass(frozen=True, slots=True)
class Counted:
    """A lease of a census: job, token (None: a ghost, or a row without attempts) and deadline."""

    job: str
    token: int | None
    deadline_ms: int


_CONTACTS = Records(contacts, Contact)
_INTERRUPTIONS = Records(interruptions, Interruption, packed=["evidence"])


def contact_of(connection: Connection, queue: str) -> Contact | None:
    """What was last seen, None before the first time."""
    return _CONTACTS.first(connection, _CONTACTS.select.where(contacts.c.queue == queue))


def knows(ledger: Ledger, queue: str) -> bool:
    """Whether a pass ever saw the queue. Where it has no key any more, the server may have lost it: a pass tells."""
    with ledger.read() as connection:
        return contact_of(connection, queue) is not None


def contacted_queues(ledger: Ledger) -> list[str]:
    """Every queue that a pass ever saw, be it on the server or lost."""
    with ledger.read() as connection:
        return sorted(connection.execute(select(contacts.c.queue)).scalars())


def contacts_of(connection: Connection, queues: Sequence[str]) -> dict[str, Contact]:
    """What was last seen of many queues."""
    wanted = _CONTACTS.select.add_columns(contacts.c.queue).where(among(connection, contacts.c.queue, queues))
    return {row["queue"]: _CONTACTS.of(row) for row in connection.execute(wanted).mappings()}


def add_contacts(connection: Connection, seen: Mapping[str, Contact]) -> None:
    """Stores first contacts. One that another process stored meanwhile stays as it is."""
    rows = [{"queue": queue, **_CONTACTS.values(seen[queue])} for queue in sorted(seen)]
    connection.execute(insert(connection, contacts).on_conflict_do_nothing(), rows)


def update_contact(connection: Connection, queue: str, life: tuple[str, str], **values: Any) -> None:
    """As `save_contact`, if the last contact was with this life (run id, replication id): where a failover came in
    between, what was seen of the old primary says nothing of the new one."""
    of_life = (contacts.c.queue == queue, contacts.c.run_id == life[0], contacts.c.replid == life[1])
    connection.execute(update(contacts).where(*of_life).values(values))


def save_contact(connection: Connection, queue: str, **values: Any) -> None:
    """Stores these fields of a contact; a first one needs `run_id`, `replid` and `seen_ms`."""
    done = connection.execute(update(contacts).where(contacts.c.queue == queue).values(values))
    if done.rowcount == 0 and "run_id" in values:
        new = insert(connection, contacts).values(queue=queue, **values)
        connection.execute(new.on_conflict_do_update(index_elements=[contacts.c.queue], set_=values))


def note_tokens(connection: Connection, taken: Mapping[str, tuple[int, int]]) -> None:
    """Notes of many queues with which token we took the lease, and which the server had until then."""
    statement = update(contacts).where(contacts.c.queue == bindparam("_queue"))
    back = case((contacts.c.token > bindparam("_before"), True), else_=contacts.c.went_back)
    rows = [{"_queue": queue, "_token": token, "_before": before} for queue, (token, before) in sorted(taken.items())]
    if rows:  # in one order everywhere
        connection.execute(statement.values(went_back=back, token=bindparam("_token")), rows)


def save_seen(connection: Connection, seen: Mapping[str, int]) -> None:
    """Moves the last sight of many queues at once (idle passes: queue and server time)."""
    statement = update(contacts).where(contacts.c.queue == bindparam("_queue")).values(seen_ms=bindparam("_seen"))
    if seen:
        connection.execute(statement, [{"_queue": queue, "_seen": at} for queue, at in sorted(seen.items())])


def mark_lost(ledger: Ledger, queues: Sequence[str]) -> None:
    """Notes that the nodes of these queues do not answer: the next contact under the same run id is the end of an
    outage."""
    with ledger.write() as connection:
        for page in pages(sorted(queues)):
            connection.execute(update(contacts).where(contacts.c.queue.in_(page)).values(lost=True))


def add(connection: Connection, found: Interruption, leases: Sequence[Counted] | None) -> int:
    """Records an interruption with its census (None: there is none); answers its id."""
    values = _INTERRUPTIONS.values(found, but=["id"])
    number = int(connection.execute(interruptions.insert().values(values).returning(interruptions.c.id)).scalar_one())
    if leases:
        rows = [{"interruption": number, "job": c.job, "token": c.token, "deadline_ms": c.deadline_ms} for c in leases]
        connection.execute(insert(connection, census).on_conflict_do_nothing(), rows)
    return number


def latest(connection: Connection, queue: str) -> Interruption | None:
    """The newest interruption of a queue."""
    wanted = _INTERRUPTIONS.select.where(interruptions.c.queue == queue).order_by(interruptions.c.id.desc())
    return _INTERRUPTIONS.first(connection, wanted.limit(1))


def of_run(connection: Connection, queue: str, run_id: str) -> list[Interruption]:
    """Those that ended under this run id, oldest first."""
    wanted = _INTERRUPTIONS.select.where(interruptions.c.queue == queue, interruptions.c.run_after == run_id)
    return _INTERRUPTIONS.all(connection, wanted.order_by(interruptions.c.id))


def was_left(connection: Connection, queue: str, run_id: str) -> bool:
    """Whether an interruption ever led from this run id to another one."""
    wanted = select(interruptions.c.id).where(
        interruptions.c.queue == queue, interruptions.c.run_before == run_id, interruptions.c.run_after != run_id
    )
    return connection.execute(wanted.limit(1)).first() is not None


def listing(ledger: Ledger, queue: str | None = None, *, since_ms: int = 0) -> list[Interruption]:
    """All that are kept, oldest first."""
    wanted = _INTERRUPTIONS.select.where(interruptions.c.ended_ms >= since_ms).order_by(interruptions.c.id)
    with ledger.read() as connection:
        return _INTERRUPTIONS.all(connection, equal(wanted, interruptions, queue=queue))


def census_of(connection: Connection, interruption: int, jobs: Sequence[str]) -> dict[str, Counted]:
    """Of these jobs, those that the census has."""
    found: dict[str, Counted] = {}
    for page in pages(jobs):
        wanted = select(census.c.job, census.c.token, census.c.deadline_ms).where(
            census.c.interruption == interruption, census.c.job.in_(page)
        )
        found.update({row.job: Counted(*row) for row in connection.execute(wanted)})
    return found


def settle(connection: Connection, interruption: int, outcomes: Mapping[str, str]) -> None:
    """Adds to an interruption what a slice did with leases of the earlier life (job -> exempted, recovered, died)."""
    totals = {"exempted": 0, "recovered": 0, "died": 0}
    for outcome in outcomes.values():
        totals["died" if outcome == "died" else "recovered"] += 1
        totals["exempted"] += outcome == "exempted"
    row = update(interruptions).where(interruptions.c.id == interruption)
    connection.execute(row.values({name: interruptions.c[name] + n for name, n in totals.items()}))
    if outcomes:
        statement = update(census).where(census.c.interruption == interruption, census.c.job == bindparam("_job"))
        connection.execute(
            statement.values(outcome=bindparam("_outcome")),
            [{"_job": job, "_outcome": outcome} for job, outcome in outcomes.items()],
        )


def add_vanished(connection: Connection, interruption: int, jobs: Iterable[str], was: str) -> None:
    """Notes jobs that the ledger knew and the server lost."""
    rows = [{"interruption": interruption, "job": job, "was": was} for job in jobs]
    if rows:
        connection.execute(insert(connection, vanished).on_conflict_do_nothing(), rows)
        total = select(func.count()).select_from(vanished).where(vanished.c.interruption == interruption)
        row = update(interruptions).where(interruptions.c.id == interruption)
        connection.execute(row.values(vanished=total.scalar_subquery()))


def vanished_of(connection: Connection, interruption: int) -> dict[str, str]:
    """Job -> what it was, for each job that vanished in that interruption."""
    wanted = select(vanished.c.job, vanished.c.was).where(vanished.c.interruption == interruption)
    return {row.job: row.was for row in connection.execute(wanted)}


def outcomes_of(connection: Connection, interruption: int) -> dict[str, str | None]:
    """Job -> how its lease ended (None: not through a sweep of ours), for each job of the census."""
    wanted = select(census.c.job, census.c.outcome).where(census.c.interruption == interruption)
    return {row.job: row.outcome for row in connection.execute(wanted)}


def of_job(ledger: Ledger, job: str) -> list[tuple[Interruption, str | None, str | None]]:
    """Every interruption that the job was in flight across, or vanished in: how its lease ended (None: through no sweep
    of ours), and what it was when it vanished (None: it did not)."""
    with ledger.read() as connection:
        ends = {
            row.interruption: row.outcome
            for row in connection.execute(select(census.c.interruption, census.c.outcome).where(census.c.job == job))
        }
        lost = {
            row.interruption: row.was
            for row in connection.execute(select(vanished.c.interruption, vanished.c.was).where(vanished.c.job == job))
        }
        wanted = _INTERRUPTIONS.select.where(interruptions.c.id.in_({*ends, *lost})).order_by(interruptions.c.id)
        found = _INTERRUPTIONS.all(connection, wanted)
    return [(cut, ends.get(cut.id), lost.get(cut.id)) for cut in found]

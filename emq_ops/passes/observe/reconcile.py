"""The dead set is the truth: the ledger learns of deaths by others, of jobs that died again, of those that are gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from emq_ops.database.engine import Connection
from emq_ops.ledger import deaths, interruptions, runs, victims
from emq_ops.ledger.deaths import NO_ATTEMPTS, Death
from emq_ops.ledger.interruptions import Contact
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.snapshot import fingerprint_of, pack_row
from emq_ops.passes.events import Died, Emit, nowhere
from emq_ops.passes.frame.budget import TimeBudget
from emq_ops.passes.frame.context import Context
from emq_ops.passes.observe.queue_state import QueueState
from emq_ops.passes.observe.rows import flow_parents, number_of, read_dead
from emq_ops.protocol.ids import is_valid
from emq_ops.protocol.keyspace import Keys, keys_of
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Server

PAGE = 1000


@dataclass(slots=True)
class Agreement:
    """What a reconciliation found. `new`: deaths that the ledger did not know; `gone`: jobs that are dead no more, by
    how; `malformed`: members that are no job ids; `completed`: members whose rows are gone (a worker of the reference
    settles a job that was dead-lettered while it ran, and leaves its entry); `whole`: False where the time ran out."""

    new: int = 0
    gone: dict[str, int] = field(default_factory=dict)
    malformed: list[str] = field(default_factory=list)
    dead: int = 0
    completed: int = 0
    whole: bool = True

    def notes(self) -> list[str]:
        """What an operator should know of members that are no dead jobs."""
        notes = []
        if self.malformed:
            notes.append(f"{len(self.malformed)} members of the dead set are no job ids; they are left alone")
        if self.completed:
            notes.append(
                f"{self.completed} in the dead set were completed by others (their rows are gone): they are no dead "
                "jobs; `emq-ops doctor` takes the entries out"
            )
        return notes


def agreed(contact: Contact | None, sight: QueueState, died: int = 0) -> bool:
    """Whether the dead set is as the ledger knows it, but for `died` deaths that were recorded since."""
    if contact is None:
        return False
    return (contact.agreed_dead + died, contact.agreed_failed + died) == (sight.dead, sight.failed)


def reconcile(context: Context, now_ms: int, budget: TimeBudget | None = None) -> Agreement:
    """Brings the ledger in line with the dead set, page by page, as far as the time goes. Rows and logs of new
    deaths are kept with them. All deaths found by one call have one age, so that ties go by mint order."""
    found = Agreement()
    budget = budget or TimeBudget()
    server, ledger, keys = context.server, context.ledger, keys_of(context.queue)
    cursor = b"0"
    while True:
        if budget.up:
            found.whole = False
            return found
        cursor, flat = server.read("ZSCAN", keys.dead, cursor, "COUNT", PAGE)
        members = flat[::2]
        found.dead += len(members)
        jobs = [m.decode("ascii") for m in members if is_valid(m)]
        found.malformed += [m.decode("utf-8", "backslashreplace") for m in members if not is_valid(m)]
        for first in range(0, len(jobs), PAGE):  # a small set comes whole, whatever COUNT says
            page = jobs[first : first + PAGE]
            new, completed = learn(server, ledger, keys, page, context.run, now_ms, context.emit)
            found.new += new
            found.completed += completed
        if cursor == b"0":
            break
    with ledger.read() as connection:
        known = deaths.count_open(connection, context.queue)
    if known != found.dead - len(found.malformed) - found.completed:
        _forget(context, now_ms, found)
    with ledger.write() as connection:
        _settle_listing(connection, context)
    return found


def _settle_listing(connection: Connection, context: Context) -> None:
    """What a trim that did not end had removed is known now, and is its own, whoever found it. One that may still be at
    work beside us needs its note to the end."""
    queue, token = context.queue, 0 if context.fence is None else context.fence.token
    listing = victims.noted(connection, queue)
    if listing is not None:
        removed = deaths.count_gone(connection, listing.run, queue=queue, how=deaths.TRIMMED)
        runs.at_least(connection, listing.run, "removed", removed)
        if not runs.may_run(connection, listing.run, token):
            victims.forget(connection, queue)


def identities(server: Server, keys: Keys, jobs: Sequence[str]) -> tuple[dict[str, tuple[int, int]], list[str]]:
    """Attempts and stalls of some dead jobs (at most PAGE), as their rows say them; and those that have no row."""
    told = server.run(load("dead_look"), [keys.dead], [keys.base, *jobs], readonly=True)
    pairs = zip(jobs, told[::2], told[1::2], strict=True)
    found = {job: (number_of(attempts, NO_ATTEMPTS), number_of(stalls, 0)) for job, attempts, stalls in pairs}
    doubted = [job for job, (attempts, _) in found.items() if attempts == NO_ATTEMPTS]  # hardly ever any
    rows = server.read_many([("EXISTS", keys.row(job)) for job in doubted])
    gone = [job for job, row in zip(doubted, rows, strict=True) if not row]
    for job in gone:
        del found[job]
    return found, gone


def learn(
    server: Server,
    ledger: Ledger,
    keys: Keys,
    jobs: Sequence[str],
    run: str | None,
    now_ms: int,
    emit: Emit = nowhere,
) -> tuple[int, int]:
    """Records those of some dead jobs (at most PAGE) whose deaths the ledger does not know: first seen at `now_ms`, by
    `run`; closes the deaths of those that were completed. Returns how many are new, and how many completed."""
    queue = keys.queue
    stands, completed = identities(server, keys, jobs)
    with ledger.read() as connection:
        known = deaths.known(connection, queue, jobs)
    settled = [job for job in completed if job in known]
    if settled:
        with ledger.write() as connection:
            deaths.close(connection, queue, settled, deaths.COMPLETED, now_ms)
    fresh = [job for job, identity in stands.items() if known.get(job) != identity]
    if not fresh:
        return 0, len(completed)
    rows = read_dead(server, keys, fresh)
    flows = flow_parents(server, keys, fresh)
    seen = [_death(job, *rows[job], run, now_ms, flows.get(job)) for job in fresh if job in rows]
    # Dead, with a row or logs that can't be read: known by their names alone.
    seen += [
        Death(job, *stands[job], first_seen_ms=now_ms, found_by=run, flow=True)
        for job in fresh
        if job not in rows and server.read("ZSCORE", keys.dead, job) is not None
    ]
    with ledger.write() as connection:
        new = deaths.record(connection, queue, seen)
    for death in seen:
        emit(Died(queue, run, job=death.job, cause=death.cause, attempts=death.attempts, stalls=death.stalls))
    return new, len(completed)


def _death(job: str, row: list[bytes], logs: list[bytes], run: str | None, now_ms: int, flow: bool | None) -> Death:
    fields = dict(zip(row[::2], row[1::2], strict=True))
    stalls, error = number_of(fields.get(b"stalled"), 0), fields.get(b"last_error")
    return Death(
        job=job,
        attempts=number_of(fields.get(b"attempts"), NO_ATTEMPTS),
        stalls=stalls,
        first_seen_ms=now_ms,
        cause=deaths.cause_of(error, stalls, flow=flow or False),
        last_error=error,
        found_by=run,
        epoch=fields[b"lease_epoch"].decode("utf-8", "replace")[:64] if b"lease_epoch" in fields else None,
        flow=flow is not None,
        snapshot=pack_row(row, logs),
        fingerprint=fingerprint_of(row, logs),
    )


def _forget(context: Context, now_ms: int, found: Agreement) -> None:
    """Closes the deaths of jobs that are dead no more: revived (the row lives), removed, or lost by the server."""
    server, ledger, queue, newest = context.server, context.ledger, context.queue, context.newest
    keys, after = keys_of(queue), ""
    with ledger.read() as connection:
        listing = victims.noted(connection, queue)
    while True:
        with ledger.read() as connection:
            page = deaths.open_jobs(connection, queue, after=after, limit=PAGE)
        if not page:
            return
        after = page[-1][0]
        scores = server.read("ZMSCORE", keys.dead, *[job for job, _ in page])
        absent = [(job, seen) for (job, seen), score in zip(page, scores, strict=True) if score is None]
        rows = server.read_many([("EXISTS", keys.row(job)) for job, _ in absent])
        ends: dict[tuple[str, str | None], list[str]] = {}
        for (job, seen), row in zip(absent, rows, strict=True):
            if row:
                end: tuple[str, str | None] = (deaths.REVIVED, None)
            elif listing is not None and listing.covers(job, seen):
                end = (deaths.TRIMMED, listing.run)
            elif newest is not None and newest.went_back and seen <= newest.seen_ms:
                end = (deaths.VANISHED, None)
            else:
                end = (deaths.REMOVED, None)
            ends.setdefault(end, []).append(job)
        if ends:
            with ledger.write() as connection:
                for (how, by), jobs in ends.items():
                    found.gone[how] = found.gone.get(how, 0) + deaths.close(connection, queue, jobs, how, now_ms, by)
                    if how == deaths.VANISHED and newest is not None:
                        interruptions.add_vanished(connection, newest.id, jobs, "dead")

"""Whom a trim lets go, and the note of whom it is about to remove, so that the next pass can tell whose work it was."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import BigInteger, ColumnElement, Connection, and_, delete, func, or_, select, type_coerce, update

from emq_ops.database.records import Records
from emq_ops.database.sqlite import roomy
from emq_ops.database.statements import upsert
from emq_ops.ledger.deaths import TRIMMED, close, count_open
from emq_ops.ledger.schema import deaths, listings

_NAMED = 500


class Victim(NamedTuple):
    """A job that a trim may remove: `attempts` and `stalls` as they were when it was last seen dead; `flow`: it may
    have books of a flow parent."""

    job: str
    attempts: int
    stalls: int
    first_seen_ms: int
    flow: bool = True


def find_victims(
    connection: Connection,
    queue: str,
    *,
    keep: int | None,
    seen_before_ms: int | None = None,
    minted_before: str | None = None,
    by_mint: bool = False,
) -> list[Victim]:
    """Who goes, oldest first: all but the newest `keep`, and whoever was first seen dead before `seen_before_ms`. With
    `by_mint` ages are those of the ids: the order is theirs, and `minted_before` (an id) is the bound."""
    rank = [deaths.c.job] if by_mint else [deaths.c.first_seen_ms, deaths.c.job]
    here = (deaths.c.queue == queue, deaths.c.gone_ms.is_(None))
    count = 0 if keep is None else max(0, count_open(connection, queue) - keep)
    aged = []
    if seen_before_ms is not None and not by_mint:
        aged.append(deaths.c.first_seen_ms < seen_before_ms)
    if minted_before is not None and by_mint:
        aged.append(deaths.c.job < minted_before)
    if aged:
        # Age and rank go the same way: whoever is too old comes first, so the larger number holds both.
        old = select(func.count()).select_from(deaths).where(*here, *aged)
        count = max(count, int(connection.execute(old).scalar_one()))
    if not count:
        return []
    # A truth value as a number needs no conversion: a hundred thousand of them are felt.
    fields = (type_coerce(deaths.c[name], BigInteger) if name == "flow" else deaths.c[name] for name in Victim._fields)
    wanted = select(*fields).where(*here).order_by(*rank).limit(count)
    return [Victim._make(row) for row in connection.execute(wanted)]


@dataclass(frozen=True, slots=True)
class Listing:
    """`run` is about to remove dead jobs of `queue`, none of a higher rank than this one: ranks are by first seen and
    id, or by id alone (`by_mint`)."""

    queue: str
    run: str
    by_mint: bool
    until_ms: int
    until_job: str

    def covers(self, job: str, first_seen_ms: int) -> bool:
        """Whether a job is of those."""
        if self.by_mint:
            return job <= self.until_job
        return (first_seen_ms, job) <= (self.until_ms, self.until_job)

    def rank(self) -> ColumnElement[bool]:
        """The same, as the database says it."""
        if self.by_mint:
            return deaths.c.job <= self.until_job
        # Said so that the index by age can be used as a range.
        earlier = or_(deaths.c.first_seen_ms < self.until_ms, deaths.c.job <= self.until_job)
        return and_(deaths.c.first_seen_ms <= self.until_ms, earlier)


_LISTINGS = Records(listings, Listing)


def up_to(queue: str, run: str, last: Victim, *, by_mint: bool) -> Listing:
    """The listing that ends with this victim."""
    return Listing(queue, run, by_mint, last.first_seen_ms, last.job)


def note(connection: Connection, listing: Listing) -> None:
    """Notes a listing; it takes the place of an older one."""
    upsert(connection, listings, _LISTINGS.values(listing))


def noted(connection: Connection, queue: str) -> Listing | None:
    """The listing that was not taken back: its trim did not end."""
    return _LISTINGS.first(connection, _LISTINGS.select.where(listings.c.queue == queue))


def forget(connection: Connection, queue: str) -> None:
    """Takes the note back."""
    connection.execute(delete(listings).where(listings.c.queue == queue))


def close_trimmed(
    connection: Connection,
    listing: Listing,
    removed: Sequence[str],
    stay: Collection[str],
    at_ms: int,
    *,
    gaps: bool = False,
) -> int:
    """Marks `removed` as trimmed by the listing's run and takes the note back; answers how many there were. `stay`: of
    the jobs that the listing covers, those that were not removed. `gaps`: there may be others that it covers and that
    were never meant (a bounded trim), so only those named in `removed` are marked."""
    with roomy(connection):
        if gaps or len(stay) > _NAMED:
            gone = close(connection, listing.queue, removed, TRIMMED, at_ms, listing.run)
        else:
            here = (deaths.c.queue == listing.queue, deaths.c.gone_ms.is_(None), listing.rank())
            statement = update(deaths).where(*here)
            if stay:
                statement = statement.where(deaths.c.job.not_in(list(stay)))
            values = {"gone_ms": at_ms, "gone_how": TRIMMED, "gone_by": listing.run}
            gone = connection.execute(statement.values(values)).rowcount
    forget(connection, listing.queue)
    return gone

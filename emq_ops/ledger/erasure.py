"""Erasing a job's contents from the state database: rows and logs of its deaths, what acts laid by, error texts, and
texts of journals and reports that quote them. What happened to the job stays, without what was in it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Table, delete, or_, select, update

from emq_ops.database.scrub import delete_securely, scrub
from emq_ops.ledger.acts import act_items
from emq_ops.ledger.erased import note_erased
from emq_ops.ledger.ledger import Ledger, host_ms
from emq_ops.ledger.schema import alerts, deaths, requests, runs, snapshots
from emq_ops.ledger.snapshot import JobSnapshot, unpack, unpack_death

ERASED = "(erased)"
CONTENTS = (b"payload", b"progress", b"last_error", b"result")
"""Fields of a row that hold what the job's owner put there."""
_QUOTING = frozenset({"payload", "progress", "error", "last_error", "result", "text", "message", "sample", "logs"})
"""Names under which JSON about a job says what was in it."""
_SHORTEST = 6
"""Shorter contents are not looked for in other texts: they would be found everywhere."""

_ENOUGH = 64
"""So many characters of a content find the texts that may quote it."""

TextColumns = tuple[Table, tuple[str, ...]]
TEXTS: tuple[TextColumns, ...] = (
    (alerts, ("text", "facts")),
    (runs, ("error", "counts")),
    (requests, ("report", "error")),
)


class StateErasure(NamedTuple):
    """How many places of each kind held something of the job."""

    deaths: int = 0
    acts: int = 0
    texts: int = 0


def erase_job(ledger: Ledger, queue: str, job: str, also: Iterable[TextColumns] = ()) -> StateErasure:
    """Erases the job for good, in one transaction: whatever is recorded of it later has no contents. `also`: text
    columns of other packages' tables. The files are clean once `scrub_state` was called. Harmless to repeat; raises
    what the ledger raises."""
    with ledger.write() as connection:
        delete_securely(connection)
        note_erased(connection, queue, job, host_ms())
        kept = _kept(connection, queue, job)
        quotes = _quotes(kept)
        ids = select(deaths.c.id).where(deaths.c.queue == queue, deaths.c.job == job)
        rows = connection.execute(delete(snapshots).where(snapshots.c.death.in_(ids))).rowcount
        told = update(deaths).where(deaths.c.queue == queue, deaths.c.job == job, deaths.c.last_error.is_not(None))
        connection.execute(told.values(last_error=None))
        texts = sum(_redact(connection, table, names, job, quotes) for table, names in (*TEXTS, *also))
        return StateErasure(int(rows), _empty_acts(connection, queue, job), texts)


def count_kept(ledger: Ledger, queue: str, job: str) -> StateErasure:
    """What `erase_job` would find, apart from texts that quote the job."""
    with ledger.read() as connection:
        acts = connection.execute(select(act_items.c.run).where(*_kept_by_acts(queue, job))).all()
        return StateErasure(len(_kept(connection, queue, job)) - len(acts), len(acts))


def scrub_state(ledger: Ledger, also: Iterable[TextColumns] = ()) -> list[str]:
    """Takes what was erased out of the database's files. Returns what could not be done, a sentence each."""
    tables = [snapshots, deaths, act_items, *(table for table, _ in (*TEXTS, *also))]
    return scrub(ledger, [table.name for table in tables])


def _kept_by_acts(queue: str, job: str) -> tuple[Any, ...]:
    here = select(runs.c.id).where(runs.c.queue == queue)
    return act_items.c.job == job, act_items.c.whole.is_not(None), act_items.c.run.in_(here)


def _kept(connection: Connection, queue: str, job: str) -> list[JobSnapshot]:
    bodies = (
        select(snapshots.c.body)
        .join(deaths, deaths.c.id == snapshots.c.death)
        .where(deaths.c.queue == queue, deaths.c.job == job)
    )
    found = [unpack_death(body) for body in connection.execute(bodies).scalars()]
    wholes = select(act_items.c.whole).where(*_kept_by_acts(queue, job))
    return found + [unpack(body) for body in connection.execute(wholes).scalars()]


def _empty_acts(connection: Connection, queue: str, job: str) -> int:
    return int(connection.execute(update(act_items).where(*_kept_by_acts(queue, job)).values(whole=None)).rowcount)


def _quotes(kept: Sequence[JobSnapshot]) -> list[str]:
    """The job's contents as texts of ours would quote them, the longest first."""
    raw = {value for job in kept for name, value in job.fields if name in CONTENTS}
    raw |= {line for job in kept for line in job.logs}
    texts = {value.decode("utf-8", "backslashreplace") for value in raw}
    return sorted((text for text in texts if len(text) >= _SHORTEST), key=len, reverse=True)


def _redact(connection: Connection, table: Table, names: Sequence[str], job: str, quotes: Sequence[str]) -> int:
    """Takes the job's contents out of text columns; returns how many texts changed."""
    changed, keys = 0, list(table.primary_key)
    for name in names:
        column = table.c[name]
        begins = [quote[:_ENOUGH] for quote in quotes]
        # PostgreSQL takes no NUL, and so has none in a text.
        forms = {job, *(b for b in begins if "\0" not in b), *(json.dumps(begin)[1:-1] for begin in begins)}
        wanted = select(*keys, column).where(or_(*(column.contains(form, autoescape=True) for form in sorted(forms))))
        for *key, text in connection.execute(wanted).all():
            clean = redacted(text, job, quotes)
            if clean != text:
                here = [part == value for part, value in zip(keys, key, strict=True)]
                connection.execute(update(table).where(*here).values({name: clean}))
                changed += 1
    return changed


def redacted(text: str, job: str, quotes: Sequence[str]) -> str:
    """`text`, a sentence or JSON, without the job's contents: `quotes` wherever they stand, and what JSON says of the
    job under names such as ``error``. Pure."""
    try:
        found = json.loads(text)
    except ValueError:
        return _without(text, quotes)
    if not isinstance(found, dict | list):
        return _without(text, quotes)
    clean = _clean(found, job, quotes)
    return text if clean == found else json.dumps(clean)


def _without(text: str, quotes: Sequence[str]) -> str:
    for quote in quotes:
        text = text.replace(quote, ERASED)
    return text


def _clean(value: Any, job: str, quotes: Sequence[str]) -> Any:
    if isinstance(value, str):
        return _without(value, quotes)
    if isinstance(value, list):
        return [_clean(one, job, quotes) for one in value]
    if isinstance(value, dict):
        about = job in value.values()
        return {
            name: ERASED if about and name in _QUOTING and one else _clean(one, job, quotes)
            for name, one in value.items()
        }
    return value

"""Which database may lead as this state. The state's id travels in every copy of the database, so it is no proof.

PostgreSQL is known by the server's system identifier and the database's oid. A SQLite file has *lives*: a new one
begins wherever it is opened to lead at another place, with a count that is raised in the file before it goes into a
lease. A lease with a life, or a count of it, that the file never had was taken by another copy. The host's name tells
nothing: a container that is made anew on the same file is the same owner.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, delete, select, text, update

from emq_ops.database.errors import DatabaseError
from emq_ops.database.profile import file_of
from emq_ops.database.statements import upsert
from emq_ops.ledger.ledger import Ledger, host_ms
from emq_ops.ledger.schema import identity, lives

_SUCCEEDS, _OLDER, _FORMER = "succeeds", "older", "former:"


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a lease says of the database that took it: `db` of PostgreSQL, `life` and `count` of a SQLite file. Empty:
    nothing, as a version wrote it that knew of none."""

    db: str = ""
    life: str = ""
    count: int = 0


def raise_stamp(ledger: Ledger, connection: Connection) -> Stamp:
    """The stamp for a lease that is about to be taken; raised in a writing transaction, which must be committed before
    the lease is."""
    if ledger.shared:
        return Stamp(db=database_id(ledger))
    place = _place(ledger)
    newest = connection.execute(select(lives).order_by(lives.c.since_ms.desc(), lives.c.life).limit(1)).first()
    if newest is None or newest.place != place:
        return _new_life(connection, place, newest.since_ms if newest is not None else 0)
    raised = update(lives).where(lives.c.life == newest.life).values(count=lives.c.count + 1).returning(lives.c.count)
    return Stamp(life=newest.life, count=int(connection.execute(raised).scalar_one()))


def _new_life(connection: Connection, place: str, after_ms: int) -> Stamp:
    stamp = Stamp(life=secrets.token_hex(8), count=1)
    since = max(host_ms(), after_ms + 1)  # the newest one is in force, whatever the host's clock did
    connection.execute(lives.insert().values(life=stamp.life, count=1, place=place, since_ms=since))
    return stamp


def _place(ledger: Ledger) -> str:
    """This boot of the machine, and the file in it."""
    file = file_of(str(ledger.engine.url))
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        boot = ""
    try:
        found = os.stat(file or "")
    except OSError:
        return boot
    return f"{boot}:{found.st_dev}:{found.st_ino}"


def database_id(ledger: Ledger) -> str:
    """Of PostgreSQL: what no dump or copy of the database carries. Empty for SQLite, and where our role may not ask."""
    if ledger.database_id is None:
        ledger.database_id = _asked(ledger) if ledger.shared else ""
    return ledger.database_id


def _asked(ledger: Ledger) -> str:
    oid = "SELECT oid FROM pg_database WHERE datname = current_database()"
    with contextlib.suppress(DatabaseError), ledger.read() as connection:
        system = connection.execute(text("SELECT system_identifier FROM pg_control_system()")).scalar_one()
        return f"{system}:{connection.execute(text(oid)).scalar_one()}"
    return ""


class Lineage:
    """What this database knows of itself, as of one moment. `states`: the ids that it may lead as: its own, and those
    that it had before it took over another."""

    def __init__(self, ledger: Ledger) -> None:
        with ledger.read() as connection:
            rows = {row.name: row.value for row in connection.execute(select(identity))}
            self._lives = {row[0]: row[1] for row in connection.execute(select(lives.c.life, lives.c.count))}
        self.states = frozenset([rows["state"], *(n.removeprefix(_FORMER) for n in rows if n.startswith(_FORMER))])
        self._shared, self._db = ledger.shared, database_id(ledger)
        self._succeeds = rows.get(_SUCCEEDS, "")
        self.older: dict[str, str] | None = json.loads(rows[_OLDER]) if _OLDER in rows else None

    def knows(self, stamp: Stamp) -> bool:
        """Whether a lease with this stamp was taken by this database, or by the one that it goes on from."""
        if stamp.db:
            unknown = self._shared and not self._db  # our role may not ask
            return unknown or stamp.db in (self._db, self._succeeds)
        return not stamp.life or self._lives.get(stamp.life, 0) >= stamp.count

    def is_older(self, stamp: Stamp) -> bool:
        """Whether the stamp proves that this file is behind: a copy, or a backup that was put back."""
        return bool(stamp.life) and 0 < self._lives.get(stamp.life, 0) < stamp.count


def states_of(ledger: Ledger) -> frozenset[str]:
    """The ids that this database may write archives of, see `Lineage.states`. Asked once: a take-over is refused while
    another process of the database leads."""
    if ledger.states is None:
        ledger.states = Lineage(ledger).states
    return ledger.states


def note_older(ledger: Ledger, queue: str, holder: str) -> None:
    """Notes for good that a later database than this one led a queue: counting on must not hide it."""
    with ledger.write() as connection:
        upsert(connection, identity, {"name": _OLDER, "value": json.dumps({"queue": queue, "holder": holder})})


def note_succession(connection: Connection, db: str) -> None:
    """This database goes on from that one of PostgreSQL: it was filled from its export."""
    upsert(connection, identity, {"name": _SUCCEEDS, "value": db})


def become(ledger: Ledger, state: str, former: Iterable[str] = ()) -> None:
    """Makes this database the one of `state`, whoever was before; its own id stays one that it may write archives of.
    A SQLite file begins another life, so that no copy of it can be taken for it."""
    with ledger.write() as connection:
        for name in {ledger.state, *former} - {state}:
            upsert(connection, identity, {"name": _FORMER + name, "value": str(host_ms())})
        connection.execute(delete(identity).where(identity.c.name.in_([_OLDER, _FORMER + state])))
        connection.execute(update(identity).where(identity.c.name == "state").values(value=state))
        if not ledger.shared:
            newest = connection.execute(select(lives.c.since_ms).order_by(lives.c.since_ms.desc()).limit(1)).scalar()
            _new_life(connection, _place(ledger), newest or 0)
    ledger.state, ledger.states = state, None

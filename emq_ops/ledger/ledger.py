"""`Ledger`: an open state database of this version's schema, with its identity."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

from sqlalchemy import Connection, Engine, select, text

from emq_ops.database.engine import Database, open_database
from emq_ops.database.migrations import Migrations
from emq_ops.database.profile import Profile
from emq_ops.database.statements import insert
from emq_ops.ledger import schema

PROFILE = Profile(
    name="state database",
    option="--state",
    application="emq-ops",
    when_lost="put a backup in its place and start anew (an older one: `emq-ops state take-over`)",
    busy=10,
    statement=30,
    idle=60,
    pool={"pool_size": 8, "max_overflow": 24},
)
STATE = Migrations("emq_ops.ledger", "ledger_version", 7_305_601_119, schema.metadata, schema.identity)


class Ledger(Database):
    """One state. `state` is its UUID, which stands in the lease of each queue it owns; `database_id`, `states`: see
    `ownership`, None until somebody asked."""

    def __init__(self, engine: Engine, profile: Profile, state: str) -> None:
        super().__init__(engine, profile)
        self.state = state
        self.database_id: str | None = None
        self.states: frozenset[str] | None = None


def open_ledger(url: str, profile: Profile = PROFILE, *, renew: Callable[[], str] | None = None) -> Ledger:
    """Opens the state database at `url`, making it or bringing it up to this version where needed. `renew`: gives the
    URL with the password that is good now.

    Raises BadInputError, DatabaseError (read-only, damaged, newer schema), DatabaseUnreachableError.
    """
    database = open_database(url, profile, renew)
    try:
        return Ledger(database.engine, profile, STATE.open(database))
    except BaseException:
        database.close()
        raise


def secret_key(ledger: Ledger, name: str) -> bytes:
    """The key of the state that goes by `name`, made at first use; it goes where the state goes, and nowhere else."""
    named = select(schema.identity.c.value).where(schema.identity.c.name == name)
    with ledger.read() as connection:
        found = connection.execute(named).scalar()
    if found is None:
        with ledger.write() as connection:
            made = insert(connection, schema.identity).values(name=name, value=secrets.token_hex(32))
            connection.execute(made.on_conflict_do_nothing())
            found = connection.execute(named).scalar_one()
    return bytes.fromhex(found)


def clock_ms(connection: Connection) -> int:
    """The one clock that all who share the state have, unix ms: PostgreSQL's own, or this host's with SQLite."""
    if connection.dialect.name == "postgresql":
        return int(connection.execute(text("SELECT extract(epoch FROM clock_timestamp()) * 1000")).scalar_one())
    return host_ms()


def host_ms() -> int:
    """The host's clock, unix ms: for runs and requests, never for leases."""
    return time.time_ns() // 1_000_000

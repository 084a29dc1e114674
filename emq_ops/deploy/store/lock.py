"""The state lock: one apply at a time. It names its owner, expires, and is looked at again before each write."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, select, update

from emq_ops.database.statements import insert
from emq_ops.deploy.model import instant
from emq_ops.ledger.deploy_schema import state_lock
from emq_ops.ledger.ledger import Ledger, clock_ms
from emq_ops.passes.lease.holder import Holder
from emq_ops.protocol.errors import EmqError

NAME = "state"
TTL_MS = 60_000
"""How long the lock stands without being renewed. Each step renews it."""


class LockedError(EmqError):
    """Somebody else is applying. `owner`: who."""

    def __init__(self, owner: Owner) -> None:
        super().__init__(
            f"locked by {owner}",
            where="state",
            fix="wait until it has ended; if it is gone for good: emq-ops state unlock",
        )
        self.owner = owner


class LockLostError(EmqError):
    """The lock is not ours any more; nothing was written since."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Who holds or held the lock. Times: the database's clock; `now_ms`: when it was read."""

    what: str
    holder: Holder
    since_ms: int
    until_ms: int
    token: int
    now_ms: int

    @property
    def held(self) -> bool:
        """Whether it is held: not given up, not expired, and its owner not known to be dead. An end further to come
        than a lock lasts was written by a clock that was ahead: only an owner that is known to live holds by it."""
        left = self.until_ms - self.now_ms
        if left <= 0 or self.holder.surely_dead:
            return False
        return left <= TTL_MS or self.holder.surely_alive

    def __str__(self) -> str:
        return f"{self.what} ({self.holder}, since {instant(self.since_ms)}, until {instant(self.until_ms)})"


def owner_of(connection: Connection) -> Owner | None:
    """Who holds the lock, or held it and did not give it up; None where it is free."""
    row = connection.execute(select(state_lock).where(state_lock.c.name == NAME)).mappings().first()
    if row is None or not row["until_ms"]:
        return None
    holder = Holder(row["role"], row["host"], row["machine"], int(row["pid"]), row["start"], "")
    since, until, token = (int(row[name]) for name in ("since_ms", "until_ms", "token"))
    return Owner(row["what"], holder, since, until, token, clock_ms(connection))


class StateLock:
    """One attempt at the lock: take it, keep it, give it up."""

    def __init__(self, ledger: Ledger, what: str, *, ttl_ms: int = TTL_MS) -> None:
        self._ledger, self._what, self._ttl = ledger, what, ttl_ms
        self._me = Holder.me("command")
        self._token = 0

    def take(self) -> Owner | None:
        """Takes the lock at once; answers whose it was where its owner is dead or silent. Raises LockedError."""
        with self._ledger.write() as connection:
            now = clock_ms(connection)
            # A row must exist before it can be locked, whoever comes first.
            empty = {"name": NAME, "token": 0, "what": "", "role": "", "host": "", "machine": "", "pid": 0, "start": ""}
            first = insert(connection, state_lock).values(**empty, since_ms=0, until_ms=0)
            connection.execute(first.on_conflict_do_nothing())
            token = connection.execute(
                select(state_lock.c.token).where(state_lock.c.name == NAME).with_for_update()
            ).scalar_one()
            before = owner_of(connection)
            if before is not None and before.held:
                raise LockedError(before)
            self._token = int(token) + 1
            connection.execute(
                update(state_lock)
                .where(state_lock.c.name == NAME)
                .values(
                    token=self._token,
                    what=self._what,
                    role=self._me.role,
                    host=self._me.host,
                    machine=self._me.machine,
                    pid=self._me.pid,
                    start=self._me.start,
                    since_ms=now,
                    until_ms=now + self._ttl,
                )
            )
        return before

    def assert_held(self, connection: Connection) -> None:
        """Renews the lock inside `connection`'s transaction. Raises LockLostError where somebody took or freed it: then
        that transaction must not write. One that ran out and is nobody else's is ours: time alone takes nothing away
        (the clock may have been set)."""
        found = connection.execute(
            update(state_lock)
            .where(state_lock.c.name == NAME, state_lock.c.token == self._token, state_lock.c.until_ms > 0)
            .values(until_ms=clock_ms(connection) + self._ttl)
        )
        if found.rowcount != 1:
            raise LockLostError(
                "the state lock is not ours any more: nothing more was written",
                where=self._ledger.where,
                fix="look at `emq-ops state status`, then plan and apply again",
            )

    def give_up(self, connection: Connection) -> None:
        """Frees the lock, where it is still ours."""
        connection.execute(
            update(state_lock).where(state_lock.c.name == NAME, state_lock.c.token == self._token).values(until_ms=0)
        )


def unlock(ledger: Ledger, *, force: bool = False) -> Owner | None:
    """Frees the lock of an owner that is gone; answers whose it was, None where it was free. Raises LockedError for an
    owner that may still be alive (`force` overrides: a second writer is then refused at its next write)."""
    with ledger.write() as connection:
        before = owner_of(connection)
        if before is None:
            return None
        if before.held and not force:
            raise LockedError(before)
        connection.execute(update(state_lock).where(state_lock.c.name == NAME).values(until_ms=0))
    return before

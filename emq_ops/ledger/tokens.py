"""Fencing tokens: numbers that never repeat for a queue, whatever the server forgot."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, case

from emq_ops.database.statements import insert
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.ownership import Stamp, raise_stamp
from emq_ops.ledger.schema import tokens


def next_token(ledger: Ledger, queue: str, seen: int = 0) -> int:
    """A token above every one this state gave out for `queue` and above `seen` (the lease's), committed before it is
    used."""
    return next_tokens(ledger, {queue: seen})[0][queue]


def next_tokens(ledger: Ledger, seen: Mapping[str, int]) -> tuple[dict[str, int], Stamp]:
    """As `next_token`, for many queues in one transaction; `seen`: queue -> the token of its lease. With the stamp for
    their leases."""
    with ledger.write() as connection:
        # In one order everywhere: two daemons that ask for the same queues must not wait for one another.
        return {queue: _next(connection, queue, seen[queue]) for queue in sorted(seen)}, raise_stamp(ledger, connection)


def raise_to(ledger: Ledger, queue: str, token: int) -> None:
    """The tokens that are given out for `queue` from now on are above `token`: the archive's log carries it."""
    with ledger.write() as connection:
        new = insert(connection, tokens).values(queue=queue, token=token)
        higher = tokens.c.token < token
        connection.execute(
            new.on_conflict_do_update(index_elements=[tokens.c.queue], set_={"token": token}, where=higher)
        )


def _next(connection: Connection, queue: str, seen: int) -> int:
    new = insert(connection, tokens).values(queue=queue, token=seen + 1)
    known = tokens.c.token
    statement = new.on_conflict_do_update(
        index_elements=[tokens.c.queue], set_={"token": case((known > seen, known), else_=seen) + 1}
    )
    return int(connection.execute(statement.returning(tokens.c.token)).scalar_one())

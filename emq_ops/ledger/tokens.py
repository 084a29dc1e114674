"""Fencing tokens: numbers that never repeat for a queue, whatever the server forgot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import case, select

from emq_ops.database.statements import among, insert
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
    # In one order everywhere: two daemons that ask for the same queues must not wait for one another.
    rows = [{"queue": queue, "token": seen[queue] + 1} for queue in sorted(seen)]
    with ledger.write() as connection:
        if rows:
            new = insert(connection, tokens)
            known, least = tokens.c.token, new.excluded.token
            above = {"token": case((known >= least, known + 1), else_=least)}
            connection.execute(new.on_conflict_do_update(index_elements=[tokens.c.queue], set_=above), rows)
        wanted = select(tokens.c.queue, tokens.c.token).where(among(connection, tokens.c.queue, sorted(seen)))
        given = {row.queue: int(row.token) for row in connection.execute(wanted)}
        return given, raise_stamp(ledger, connection)


def highest(ledger: Ledger, queues: Sequence[str]) -> dict[str, int]:
    """The highest token that was given out for each of these queues; without those of which none was."""
    with ledger.read() as connection:
        wanted = select(tokens.c.queue, tokens.c.token).where(among(connection, tokens.c.queue, queues))
        return {row.queue: int(row.token) for row in connection.execute(wanted)}


def raise_to(ledger: Ledger, queue: str, token: int) -> None:
    """The tokens that are given out for `queue` from now on are above `token`: the archive's log carries it."""
    with ledger.write() as connection:
        new = insert(connection, tokens).values(queue=queue, token=token)
        higher = tokens.c.token < token
        connection.execute(
            new.on_conflict_do_update(index_elements=[tokens.c.queue], set_={"token": token}, where=higher)
        )

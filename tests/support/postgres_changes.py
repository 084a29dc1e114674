"""What is done to a PostgreSQL under test, as its owner does it."""

from __future__ import annotations

import psycopg

from tests.support.postgres import Postgres


def database(url: str) -> str:
    return url.rpartition("?")[0].rpartition("/")[2]


def alter(postgres: Postgres, *statements: str) -> None:
    with psycopg.connect(postgres.url(), autocommit=True) as admin:
        for statement in statements:
            admin.execute(statement)


def turn_read_only(own: Postgres, url: str) -> None:
    """As in a failover: the sessions that are open take no writes any more, those that are opened anew do."""
    alter(
        own,
        "SET default_transaction_read_only = off",
        f"ALTER DATABASE {database(url)} SET default_transaction_read_only = off",
        "ALTER SYSTEM SET default_transaction_read_only = on",
        "SELECT pg_reload_conf()",
    )

"""PostgreSQL under the state and the archive's local database: killed, hung, full of others, taking no writes."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event, text

from emq_archive.local import open_local
from emq_ops.database.errors import DatabaseError, DatabaseLockedError, DatabaseUnreachableError
from emq_ops.ledger.ledger import Ledger, open_ledger
from emq_ops.ledger.schema import runs
from emq_ops.ledger.tokens import next_token, next_tokens
from emq_ops.protocol import deadline
from emq_ops.protocol.errors import EmqError, UnreachableError
from tests.support.daemons import wait_for
from tests.support.postgres import Postgres
from tests.support.postgres_changes import alter, database, turn_read_only


def pid_of(connection: Connection) -> int:
    return int(connection.execute(text("SELECT pg_backend_pid()")).scalar_one())


@pytest.mark.parametrize(
    ("change", "kind", "says"),
    [
        ("ALTER DATABASE {db} SET default_transaction_read_only = on", DatabaseError, "takes no writes .*primary"),
        ("DROP DATABASE {db}", DatabaseUnreachableError, "refuses us: database .* does not exist .*make it"),
        ("ALTER DATABASE {db} ALLOW_CONNECTIONS false", DatabaseUnreachableError, "refuses us: .*not currently accept"),
        ("ALTER DATABASE {db} CONNECTION LIMIT 0", DatabaseUnreachableError, "refuses us: too many .*max_connections"),
        ("REVOKE ALL ON DATABASE {db} FROM PUBLIC", DatabaseUnreachableError, "refuses us: permission denied"),
    ],
)
def test_what_it_refuses_is_one_line_that_says_what_to_do(
    postgres: Postgres, change: str, kind: type[EmqError], says: str
) -> None:
    url = postgres.fresh()
    open_ledger(url).close()
    open_local(url).close()
    alter(postgres, change.format(db=database(url)), "CREATE ROLE someone LOGIN")
    if "LIMIT" in change or "REVOKE" in change:  # which a superuser does not feel
        url = url.replace("postgres@", "someone@")
    try:
        with pytest.raises(kind, match=says) as told, open_ledger(url) as ledger:
            next_token(ledger, "mail")
        assert isinstance(told.value, UnreachableError) == (kind is DatabaseUnreachableError)
        with pytest.raises(EmqError, match=says), open_local(url) as store, store.write() as connection:
            connection.execute(text("CREATE TABLE mine (id integer)"))
    finally:
        alter(postgres, "DROP ROLE someone")


def test_a_role_without_rights(postgres: Postgres) -> None:
    url = postgres.fresh()
    open_ledger(url).close()
    alter(postgres, "CREATE ROLE guest LOGIN")
    with pytest.raises(DatabaseError, match=r"permission denied .*grant our role"):
        open_ledger(url.replace("postgres@", "guest@"))
    alter(postgres, "DROP ROLE guest")


@pytest.mark.parametrize(
    ("setting", "ours"),
    [
        ("statement_timeout", "30s"),
        ("lock_timeout", "10s"),
        # A process that is frozen in a transaction must not keep what it locked from the others for long.
        ("idle_in_transaction_session_timeout", "1min"),
    ],
)
def test_timeouts_that_the_database_sets_for_everybody_are_not_ours(
    postgres: Postgres, setting: str, ours: str
) -> None:
    url = postgres.fresh()
    alter(postgres, f"ALTER DATABASE {database(url)} SET {setting} = 1")
    with open_ledger(url) as ledger, ledger.write() as connection:
        assert connection.execute(text(f"SHOW {setting}")).scalar_one() == ours


def test_a_stricter_isolation_of_the_database_makes_no_conflicts(postgres: Postgres) -> None:
    url = postgres.fresh()
    alter(postgres, f"ALTER DATABASE {database(url)} SET default_transaction_isolation = serializable")
    with open_ledger(url) as one, open_ledger(url) as two:
        with one.write() as connection:
            connection.execute(runs.select()).all()
            assert next_token(two, "mail") == 1
            connection.execute(text("UPDATE fencing_tokens SET token = 7 WHERE queue = 'mail'"))
        assert next_token(two, "mail") == 8


def test_what_two_sessions_do_to_each_other_says_to_try_again(postgres: Postgres) -> None:
    """A deadlock of their making: one of the two is told, in one line."""
    with open_ledger(postgres.fresh()) as ledger:
        next_tokens(ledger, {"a": 0, "b": 0})
        meet = threading.Barrier(2)
        told: list[EmqError] = []

        def cross(first: str, second: str) -> None:
            try:
                with ledger.write() as connection:
                    connection.execute(text(f"UPDATE fencing_tokens SET token = 9 WHERE queue = '{first}'"))
                    meet.wait(20)
                    connection.execute(text(f"UPDATE fencing_tokens SET token = 9 WHERE queue = '{second}'"))
            except EmqError as fault:
                told.append(fault)

        threads = [threading.Thread(target=cross, args=pair) for pair in (("a", "b"), ("b", "a"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (fault,) = told
        assert isinstance(fault, DatabaseLockedError)
        assert "at the same time" in str(fault)
        assert "try again" in str(fault)


def test_tokens_of_many_queues_are_asked_for_in_one_order(ledger_of: Callable[[], Ledger]) -> None:
    """Or two daemons that start together would wait for one another."""
    ledger = ledger_of()
    asked: list[str] = []

    @event.listens_for(ledger.engine, "before_cursor_execute")
    def _note(_c: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if "INTO fencing_tokens" in statement:
            asked.extend(row["queue"] for row in parameters)  # one statement for all

    next_tokens(ledger, {"c": 0, "a": 0, "b": 0})
    assert asked == ["a", "b", "c"]


@pytest.fixture
def ledger_of(postgres: Postgres) -> Iterator[Callable[[], Ledger]]:
    with open_ledger(postgres.fresh()) as opened:
        yield lambda: opened


def _ledger(url: str) -> tuple[Any, Callable[[], AbstractContextManager[Connection]]]:
    opened = open_ledger(url)
    return opened, opened.write


def _local(url: str) -> tuple[Any, Callable[[], AbstractContextManager[Connection]]]:
    opened = open_local(url)
    return opened, opened.write


@pytest.mark.parametrize("opening", [_ledger, _local])
def test_a_server_that_hangs_is_left(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch, opening: Callable[[str], Any]
) -> None:
    """Its own timeouts are kept by a server that does not hang; the driver has none."""
    monkeypatch.setattr("emq_ops.database.postgres.GRACE_SECONDS", 0.2)
    opened, write = opening(postgres.fresh())
    pids: list[int] = []
    try:
        with pytest.raises(EmqError, match="no answer within") as told, write() as connection:  # noqa: PT012
            pids.append(pid_of(connection))
            os.kill(pids[0], signal.SIGSTOP)
            with deadline.deadline(0.5):
                connection.execute(text("SELECT 1"))
        assert isinstance(told.value, UnreachableError)
        with write() as connection:
            assert pid_of(connection) != pids[0]
    finally:
        os.kill(pids[0], signal.SIGCONT)
        opened.close()


@pytest.mark.parametrize("opening", [_ledger, _local])
def test_a_session_that_hangs_in_the_pool_is_replaced(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch, opening: Callable[[str], Any]
) -> None:
    monkeypatch.setattr("emq_ops.database.postgres.GRACE_SECONDS", 0.2)
    opened, write = opening(postgres.fresh())
    opened.engine.dispose()  # so that the pool holds one session, not those of the opening
    with write() as connection:
        pid = pid_of(connection)
        raw: Any = connection.connection.dbapi_connection
    raw.until = 0.0  # its time is up, and nobody else's
    os.kill(pid, signal.SIGSTOP)
    try:
        with write() as connection:
            assert pid_of(connection) != pid
    finally:
        os.kill(pid, signal.SIGCONT)
        opened.close()


def test_a_lost_session_is_told_by_us_alone(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])  # as in a process that configured no logging
    with open_ledger(postgres.fresh()) as ledger:
        with pytest.raises(DatabaseUnreachableError), ledger.write() as connection:  # noqa: PT012
            alter(postgres, f"SELECT pg_terminate_backend({pid_of(connection)})")
            rows = [{"queue": f"q{n}", "token": n} for n in range(3)]
            connection.execute(text("INSERT INTO fencing_tokens (queue, token) VALUES (:queue, :token)"), rows)
        assert next_token(ledger, "mail") == 1
    assert capsys.readouterr().err == ""


def test_what_the_url_says_of_the_session_holds(postgres: Postgres) -> None:
    url = postgres.fresh()
    alter(postgres, f"ALTER DATABASE {database(url)} SET work_mem = '1MB'")
    url = url.replace("postgresql://", "postgres://") + "&options=-c%20work_mem%3D7MB&application_name=mine"
    for opened in (open_ledger(url), open_local(url)):
        with opened.engine.connect() as connection:
            assert connection.execute(text("SHOW work_mem")).scalar() == "7MB"
            assert connection.execute(text("SHOW application_name")).scalar() == "mine"
            assert connection.execute(text("SHOW default_transaction_isolation")).scalar() == "read committed"
        opened.close()


@pytest.mark.parametrize("opening", [_ledger, _local])
def test_sessions_that_turned_read_only_leave_the_pool_at_once(opening: Callable[[str], Any]) -> None:
    with Postgres() as own, ExitStack() as stack:
        url = own.fresh()
        opened, write = opening(url)
        stack.callback(opened.close)
        with write() as connection:
            connection.execute(text("CREATE TABLE mine (id integer)"))
        held = [stack.enter_context(opened.engine.connect()) for _ in range(4)]
        for connection in held:
            connection.close()
        turn_read_only(own, url)
        wait_for(lambda: _shows(opened.engine, "default_transaction_read_only") == "on")
        with pytest.raises(EmqError, match="takes no writes"), write() as connection:
            connection.execute(text("INSERT INTO mine VALUES (1)"))
        for _ in range(4):
            with write() as connection:
                connection.execute(text("INSERT INTO mine VALUES (1)"))


def _shows(engine: Engine, setting: str) -> str:
    with engine.connect() as connection:
        return str(connection.execute(text(f"SHOW {setting}")).scalar())

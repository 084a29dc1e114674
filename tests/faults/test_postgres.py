"""PostgreSQL under the state and the archive's local database: killed, hung, full of others, taking no writes."""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, Engine, event, text

from emq_archive.local import open_local
from emq_ops.database.errors import DatabaseError, DatabaseLockedError, DatabaseUnreachableError
from emq_ops.ledger.ledger import Ledger, open_ledger
from emq_ops.ledger.schema import deaths, runs
from emq_ops.ledger.tokens import next_token, next_tokens
from emq_ops.protocol import deadline
from emq_ops.protocol.errors import EmqError, UnreachableError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import reads
from tests.support.daemons import site, wait_for
from tests.support.health import health
from tests.support.passing import add, stall, take
from tests.support.ports import free_ports
from tests.support.postgres import Postgres
from tests.support.valkey import Valkey

CONFIG = """
server: {{url: "unix://{socket}"}}
state: {{url: "{state}"}}
archive: {{local: "{local}", remote: {{url: "file:bucket"}}, ship_after: 1s}}
daemon: {{lease: 3s, backoff: 200ms}}
queues:
  orders:
    stalled: {{every: 100ms, max_stalled: 1}}
    dead: {{every: 200ms, keep: 5, archive: true}}
    streams: {{completions: {{every: 200ms, keep: 3}}}}
"""


def database(url: str) -> str:
    return url.rpartition("?")[0].rpartition("/")[2]


def alter(postgres: Postgres, *statements: str) -> None:
    with psycopg.connect(postgres.url(), autocommit=True) as admin:
        for statement in statements:
            admin.execute(statement)


def settled(q: Queue) -> None:
    """Until every lapsed lease is swept, and what the policy lets go is trimmed."""

    def done() -> bool:
        found = reads.counts(q)
        return found.active + found.pending == 0 and found.dead <= 5

    wait_for(done)


def pid_of(connection: Connection) -> int:
    return int(connection.execute(text("SELECT pg_backend_pid()")).scalar_one())


@pytest.mark.parametrize("whom", ["postmaster", pytest.param("sessions", marks=pytest.mark.soak)])
def test_killed_under_a_daemon_at_work(tmp_path: Path, valkey: Valkey, server: Server, whom: str) -> None:
    """Nothing is counted twice or never, in the ledger and in the archive, and no run is left as running."""
    q = Queue(server, "orders")
    made: list[str] = []
    added = 0
    over = threading.Event()

    def traffic() -> None:
        nonlocal added
        while not over.wait(0.02):
            made.extend(add(q, 2))
            take(q, 2)
            server.write("XADD", q.keys.stream("completions"), "*", "job", made[-1])
            added += 1

    with Postgres() as own:
        state, local = own.fresh(), own.fresh()
        with site(tmp_path / "s", CONFIG.format(socket=valkey.socket, state=state, local=local)) as here:
            here.run("apply", "--yes")
            daemon = here.up()
            worker = threading.Thread(target=traffic)
            worker.start()
            try:
                wait_for(lambda: len(daemon.events("pass_ended")) > 6)
                if whom == "postmaster":
                    own.kill()
                    wait_for(lambda: daemon.events("state_fault"))
                    own.start()
                    wait_for(lambda: daemon.events("state_back"))
                else:
                    alter(own, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname LIKE 't%'")
                ended = len(daemon.events("pass_ended"))
                wait_for(lambda: len(daemon.events("pass_ended")) > ended + 3)
            finally:
                over.set()
                worker.join()
            settled(q)
            made.extend(add(q, 12))  # one more pass of each kind, which marks what was left as running
            take(q, 12)
            settled(q)
            wait_for(lambda: server.read("XLEN", q.keys.stream("completions")) <= 3)
            daemon.stop()
            unread = [line for line in daemon.log.read_text().splitlines() if not line.startswith("{")]
            assert unread == []  # no library speaks beside the log
            counts: Counter[str] = Counter()
            listed = here.json("runs", "ls", "--limit", "100000")
            for run in listed:
                counts.update({name: n for name, n in (run["counts"] or {}).items() if isinstance(n, int)})
            assert counts["dead"] == len(made)
            assert counts["removed"] == len(made) - reads.counts(q).dead
            assert counts["trimmed"] == added - server.read("XLEN", q.keys.stream("completions"))
            assert [run for run in listed if run["status"] == "running"] == []
            with open_ledger(state) as ledger, ledger.read() as connection:
                known = connection.execute(deaths.select()).mappings().all()
            assert sorted(row["job"] for row in known) == sorted(made)
            read = here.run("archive", "read", "orders", "completions", "--output", "jsonl").out.splitlines()
            assert len({json.loads(line)["stream_id"] for line in read}) == len(read) == added


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
            asked.append(parameters["queue"] if isinstance(parameters, dict) else parameters[0])

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


def turn_read_only(own: Postgres, url: str) -> None:
    """As in a failover: the sessions that are open take no writes any more, those that are opened anew do."""
    alter(
        own,
        "SET default_transaction_read_only = off",
        f"ALTER DATABASE {database(url)} SET default_transaction_read_only = off",
        "ALTER SYSTEM SET default_transaction_read_only = on",
        "SELECT pg_reload_conf()",
    )


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


def test_a_daemon_leaves_sessions_that_turned_read_only(tmp_path: Path, valkey: Valkey, server: Server) -> None:
    q = Queue(server, "orders")
    with Postgres() as own:
        state, local = own.fresh(), own.fresh()
        with site(tmp_path / "s", CONFIG.format(socket=valkey.socket, state=state, local=local)) as here:
            here.run("apply", "--yes")
            here.up()
            stall(q, 2)
            wait_for(lambda: reads.counts(q).dead == 2)
            turn_read_only(own, state)
            turn_read_only(own, local)
            stall(q, 2)
            wait_for(lambda: reads.counts(q).dead == 4)


def test_c25_a_database_that_takes_no_writes_for_a_while(tmp_path: Path, valkey: Valkey, server: Server) -> None:
    q, port = Queue(server, "orders"), free_ports(1)[0]
    with Postgres() as own:
        state, local = own.fresh(), own.fresh()
        names = [database(state), database(local)]
        text_ = CONFIG.format(socket=valkey.socket, state=state, local=local).replace("every: 100ms", "every: 1s")
        with site(tmp_path / "s", f'{text_}\nhttp: {{listen: "127.0.0.1:{port}"}}\n') as here:
            here.run("apply", "--yes")
            daemon = here.up()
            stall(q, 2)
            wait_for(lambda: reads.counts(q).dead == 2)
            ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname LIKE 't%'"
            alter(own, *(f"ALTER DATABASE {name} SET default_transaction_read_only = on" for name in names), ended)
            stall(q, 2)
            wait_for(lambda: "takes no writes" in str(health(port)["state_fault"]))
            over = time.monotonic() + 6
            while time.monotonic() < over:
                assert not health(port)["ok"]
                time.sleep(0.2)
            assert reads.counts(q).dead == 2
            alter(own, *(f"ALTER DATABASE {name} RESET default_transaction_read_only" for name in names))
            back = time.monotonic()
            wait_for(lambda: reads.counts(q).dead == 4)
            assert time.monotonic() - back < 10  # its interval is a second; the rest is for a busy machine
            wait_for(lambda: health(port)["ok"])
            assert len(daemon.events("state_back")) == 1
            assert len(daemon.events("state_fault")) <= 5  # ended, refused: each text once

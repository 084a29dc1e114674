"""Opening a state database: identity, migrations, faults."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text

from emq_archive.local.store import LOCAL
from emq_ops.database.engine import open_database
from emq_ops.database.errors import DatabaseLockedError
from emq_ops.database.migrations import Migrations
from emq_ops.database.scripts import directory_of
from emq_ops.ledger import acts, contents, deaths, stalls  # noqa: F401  # their tables are on the metadata
from emq_ops.ledger.ledger import PROFILE, STATE, Ledger, open_ledger
from emq_ops.ledger.schema import metadata
from emq_ops.ledger.snapshot import pack_row
from emq_ops.ledger.tokens import next_token
from emq_ops.protocol import deadline
from emq_ops.protocol.errors import DeadlineError


def test_the_state_is_one_uuid_for_ever(url: str) -> None:
    with open_ledger(url) as first, open_ledger(url) as second:
        assert first.state == second.state
        assert len(first.state) == 36


def test_many_open_a_new_database_at_once(url: str) -> None:
    states: list[str] = []

    def opening() -> None:
        with open_ledger(url) as opened:
            states.append(opened.state)

    threads = [threading.Thread(target=opening) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(states) == 6
    assert len(set(states)) == 1


def test_migrations_end_in_the_models(ledger: Ledger) -> None:
    names = {table.name for table in metadata.sorted_tables}
    with ledger.engine.connect() as connection:
        options = {
            "version_table": STATE.version_table,
            "include_object": lambda _o, name, kind, reflected, _c: kind != "table" or not reflected or name in names,
        }
        assert compare_metadata(MigrationContext.configure(connection, opts=options), metadata) == []


@pytest.mark.parametrize("migrations", [STATE, LOCAL], ids=["state", "archive"])
def test_the_head_that_is_looked_for_is_that_of_the_scripts(migrations: Migrations) -> None:
    assert migrations.head == directory_of(str(migrations.folder)).get_current_head()


def older(tmp_path: Path, last: str) -> ScriptDirectory:
    """The scripts of an earlier version: those up to revision `last`."""
    folder = tmp_path / "migrations"
    shutil.copytree(str(STATE.folder), folder, ignore=shutil.ignore_patterns("__pycache__"))
    for script in folder.glob("versions/v*.py"):
        if script.name[1:5] > last:
            script.unlink()
    return directory_of(str(folder))


def test_rows_that_were_kept_before_there_were_seals_stay_as_they_are(url: str, tmp_path: Path) -> None:
    database = open_database(url, PROFILE)
    STATE.upgrade(database, older(tmp_path, "0005"))
    body = pack_row([b"payload", b"\xff\x00"], [b"line"])
    with database.write() as connection:
        assert "seal" not in {column["name"] for column in inspect(connection).get_columns("death_rows")}
        told = {"queue": "mail", "job": "JOB0STBBIRAKHo", "body": body}
        said = "(queue, job, attempts, stalls, first_seen_ms, cause) VALUES (:queue, :job, 1, 0, 5, 'error')"
        connection.execute(text(f"INSERT INTO deaths {said}"), told)
        connection.execute(text("INSERT INTO death_rows (death, body) SELECT id, :body FROM deaths"), told)
    database.close()
    with open_ledger(url) as ledger:
        with ledger.read() as connection:
            assert contents.kept(connection, "mail", ["JOB0STBBIRAKHo"]) == {"JOB0STBBIRAKHo": body}
            assert [tuple(row) for row in deaths.told(connection, "mail", ["JOB0STBBIRAKHo"], ["cause"])] == [
                ("JOB0STBBIRAKHo", "error", None)
            ]
        with ledger.write() as connection:
            contents.replace_snapshots(connection, "mail", {"JOB0STBBIRAKHo": (b"other", b"its seal")})
        with ledger.read() as connection:
            [row] = deaths.told(connection, "mail", ["JOB0STBBIRAKHo"], [])
            assert row.seal == b"its seal"


def last_token(ledger: Ledger, queue: str) -> int:
    """The highest token that was given out for `queue`, 0 for none."""
    with ledger.read() as connection:
        found = connection.execute(text("SELECT token FROM fencing_tokens WHERE queue = :queue"), {"queue": queue})
        return int(found.scalar() or 0)


def test_tokens_never_repeat(ledger: Ledger) -> None:
    assert [next_token(ledger, "mail") for _ in range(3)] == [1, 2, 3]
    assert next_token(ledger, "mail", seen=10) == 11  # the server had a higher one
    assert next_token(ledger, "mail", seen=4) == 12  # it went back in time
    assert next_token(ledger, "orders") == 1
    assert last_token(ledger, "mail") == 12


def test_tokens_of_many_threads_are_all_different(ledger: Ledger) -> None:
    got: list[int] = []

    def ask() -> None:
        got.extend(next_token(ledger, "mail") for _ in range(10))

    threads = [threading.Thread(target=ask) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == list(range(1, 51))


def test_c21_pragmas_of_every_pooled_connection(tmp_path: Path) -> None:
    with open_ledger(f"sqlite:///{tmp_path}/s.db") as ledger:
        opened = [ledger.engine.connect() for _ in range(5)]
        for connection in opened:
            raw = connection.connection.dbapi_connection
            assert raw is not None
            values = [raw.execute(f"PRAGMA {name}").fetchone()[0] for name in ("synchronous", "journal_mode")]
            assert values == [2, "wal"]
            assert raw.execute("PRAGMA busy_timeout").fetchone()[0] == 1000 * PROFILE.busy
            assert raw.execute("PRAGMA foreign_keys").fetchone()[0] == 1
        for connection in opened:
            connection.close()


KILLED_MIGRATION = """
import os, signal, sys
from sqlalchemy import event
from emq_ops.database.engine import open_database
from emq_ops.ledger.ledger import PROFILE, STATE
database = open_database(sys.argv[1], PROFILE)
seen = 0
@event.listens_for(database.engine, "before_cursor_execute")
def count(connection, cursor, statement, *rest):
    global seen
    if statement.lstrip().upper().startswith(("CREATE TABLE", "CREATE INDEX", "CREATE UNIQUE")):
        seen += 1
        if seen == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
STATE.upgrade(database)
"""


@pytest.mark.parametrize("step", [2, 25, *(pytest.param(step, marks=pytest.mark.soak) for step in (1, 9))])
def test_c21_a_migration_killed_in_the_middle_leaves_nothing(url: str, step: int) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED_MIGRATION, url, str(step)], check=False, env=dict(os.environ))
    assert done.returncode == -signal.SIGKILL
    with open_database(url, PROFILE) as database:
        assert inspect(database.engine).get_table_names() == []
    with open_ledger(url) as ledger:
        assert next_token(ledger, "mail") == 1


def test_the_callers_deadline_bounds_a_wait_for_a_lock(tmp_path: Path) -> None:
    with open_ledger(f"sqlite:///{tmp_path}/s.db") as ledger:
        other = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with deadline.deadline(0.5), pytest.raises(DatabaseLockedError):
            next_token(ledger, "mail")
        with deadline.deadline(0), pytest.raises(DeadlineError):
            next_token(ledger, "mail")
        other.close()


def test_a_writer_takes_the_lock_before_it_reads(tmp_path: Path) -> None:
    """C12: a transaction that read first and writes then would fail at once when another committed in between."""
    with open_ledger(f"sqlite:///{tmp_path}/s.db") as ledger:
        reading, done = threading.Event(), threading.Event()

        def other() -> None:
            reading.wait(5)
            with open_ledger(f"sqlite:///{tmp_path}/s.db") as second:
                next_token(second, "mail")
            done.set()

        thread = threading.Thread(target=other)
        thread.start()
        with ledger.write() as connection:
            connection.execute(text("SELECT count(*) FROM fencing_tokens")).scalar_one()
            reading.set()
            assert not done.wait(0.05)  # it waits for us
            connection.execute(text("INSERT INTO fencing_tokens VALUES ('orders', 7)"))
        thread.join()
        assert last_token(ledger, "mail") == 1
        assert last_token(ledger, "orders") == 7


def test_c12_a_writer_and_a_reader_side_by_side_for_a_thousand_rounds(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    faults: list[BaseException] = []

    def rounds(work: Callable[[Ledger, str], object], queue: str, count: int) -> None:
        try:
            with open_ledger(url) as ledger:
                for _ in range(count):
                    work(ledger, queue)
        except BaseException as fault:
            faults.append(fault)

    jobs = [(next_token, "mail", 200), (next_token, "mail", 200), (last_token, "mail", 1000)]
    threads = [threading.Thread(target=rounds, args=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    with open_ledger(url) as ledger:
        assert last_token(ledger, "mail") == 400

"""How the local database is opened, and what its faults are called."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, event, inspect, text

from emq_archive.local import open_local, tables
from emq_archive.local.store import LOCAL, PROFILE, SqlStore
from emq_ops.database.engine import open_database
from emq_ops.database.errors import DatabaseError, DatabaseFullError, DatabaseUnreachableError
from emq_ops.protocol.deadline import deadline
from emq_ops.protocol.errors import BadInputError, DeadlineError
from tests.archive.making import REF, add, plain, settled


def test_c21_every_pooled_connection_is_set_up(tmp_path: Path) -> None:
    with open_local(f"sqlite:///{tmp_path}/a.db") as store:
        opened = [store.engine.connect() for _ in range(4)]
        for connection in opened:
            said = {
                name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
                for name in ("synchronous", "journal_mode", "busy_timeout", "foreign_keys")
            }
            assert (said["synchronous"], said["journal_mode"], said["foreign_keys"]) == (2, "wal", 1)
            assert said["busy_timeout"] > 0
        for connection in opened:
            connection.close()


STEP = """
import os, signal, sqlalchemy as sa
from alembic import op
revision, down_revision, branch_labels, depends_on = "{revision}", {down}, None, None
def upgrade():
    op.create_table("step_{revision}", sa.Column("id", sa.Integer(), primary_key=True))
    if "{revision}" == "s2" and os.environ.get("KILL"):
        op.create_table("half", sa.Column("id", sa.Integer(), primary_key=True))
        os.kill(os.getpid(), signal.SIGKILL)
"""
RUN = """
import sys
from alembic.config import Config
from alembic.script import ScriptDirectory
from emq_archive.local.store import LOCAL, PROFILE
from emq_ops.database.engine import open_database
LOCAL.upgrade(open_database(sys.argv[1], PROFILE), ScriptDirectory(sys.argv[2]))
"""


def test_c21_a_migration_killed_half_way_did_not_happen(new_local_url: Callable[[], str], tmp_path: Path) -> None:
    scripts = tmp_path / "scripts"
    (scripts / "versions").mkdir(parents=True)
    for revision, down in (("s1", None), ("s2", "s1"), ("s3", "s2")):
        (scripts / "versions" / f"{revision}.py").write_text(STEP.format(revision=revision, down=repr(down)))
    url = new_local_url()
    killed = subprocess.run([sys.executable, "-c", RUN, url, str(scripts)], env={**os.environ, "KILL": "1"})
    assert killed.returncode == -9
    database = open_database(url, PROFILE)
    with database.read() as connection:
        assert LOCAL.current(connection) is None
        assert not [t for t in inspect(connection).get_table_names() if t.startswith(("step", "half"))]
    LOCAL.upgrade(database, ScriptDirectory(str(scripts)))
    with database.read() as connection:
        assert LOCAL.current(connection) == "s3"
        assert {"step_s1", "step_s2", "step_s3"} <= set(inspect(connection).get_table_names())
        assert "half" not in inspect(connection).get_table_names()
    database.close()


def test_the_migrations_make_what_the_tables_say(new_local_url: Callable[[], str]) -> None:
    with open_local(new_local_url()) as store, store.read() as connection:
        found = inspect(connection)
        for table in tables.metadata.tables.values():
            there = {c["name"]: c["nullable"] for c in found.get_columns(table.name)}
            assert there == {c.name: bool(c.nullable) for c in table.columns}, table.name
            wanted = {index.name for index in table.indexes}
            assert wanted <= {index["name"] for index in found.get_indexes(table.name)}


def test_several_processes_may_open_a_new_database_at_once(new_local_url: Callable[[], str]) -> None:
    url = new_local_url()
    faults: list[BaseException] = []

    def opening() -> None:
        try:
            open_local(url).close()
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=opening) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []


def test_a_newer_schema_is_refused(new_local_url: Callable[[], str]) -> None:
    url = new_local_url()
    with open_local(url) as store, store.write() as connection:
        connection.execute(text(f"UPDATE {LOCAL.version_table} SET version_num = '9999'"))
    with pytest.raises(DatabaseError, match="newer version"):
        open_local(url)


@pytest.mark.parametrize("pooled", [True, False], ids=["pooled", "new"])
def test_a_database_that_was_deleted_in_use_is_not_made_anew(tmp_path: Path, pooled: bool) -> None:
    with open_local(f"sqlite:///{tmp_path}/a.db") as store:
        add(store, settled(3))
        if not pooled:
            store.engine.dispose()
        for file in tmp_path.iterdir():
            file.unlink()
        with pytest.raises(DatabaseError, match="deleted or replaced"):
            add(store, settled(3))
        assert list(tmp_path.iterdir()) == []


def test_c12_a_commit_between_reading_and_writing_does_no_harm(tmp_path: Path) -> None:
    """The frontier is read, another connection commits, then the archive writes."""
    url = f"sqlite:///{tmp_path}/a.db"
    entries = settled(200)
    with open_local(url) as one, open_local(url) as two:
        assert one.frontier(REF) is None
        add(two, entries[:100])
        assert add(one, entries).new == 100
        assert plain(one.records(REF)) == entries


@pytest.mark.parametrize(("writers", "rounds"), [(1, 200), (3, 60), pytest.param(1, 1000, marks=pytest.mark.soak)])
def test_c12_archive_and_status_side_by_side(tmp_path: Path, writers: int, rounds: int) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    entries = settled(rounds)
    faults: list[BaseException] = []
    done = threading.Event()
    looks = 0

    def status() -> None:
        nonlocal looks
        with open_local(url) as store:
            try:
                while not done.wait(0.005):
                    store.stats(REF), store.frontier(REF), store.outbox(REF)
                    looks += 1
            except BaseException as fault:
                faults.append(fault)

    def archive(number: int) -> None:
        try:
            with open_local(url) as store:
                for raw in entries[number::writers]:
                    store.frontier(REF)
                    add(store, [raw])
        except BaseException as fault:
            faults.append(fault)

    with open_local(url) as store:
        watcher = threading.Thread(target=status)
        threads = [threading.Thread(target=archive, args=(i,)) for i in range(writers)]
        for thread in (watcher, *threads):
            thread.start()
        for thread in threads:
            thread.join()
        done.set()
        watcher.join()
        assert faults == []
        assert looks > 0
        assert plain(store.records(REF)) == entries


def _limited(engine: Engine, pages: list[int | None]) -> None:
    """SQLite's own limit, on each connection as it is taken from the pool."""

    @event.listens_for(engine, "checkout")
    def _taken(raw: sqlite3.Connection, _record: object, _proxy: object) -> None:
        raw.execute(f"PRAGMA max_page_count = {pages[0] or 4294967294}")


def test_c15_a_full_disk_keeps_nothing_of_the_batch(tmp_path: Path) -> None:
    path = tmp_path / "full.db"
    with open_local(f"sqlite:///{path}") as store:
        before = settled(10)
        add(store, before)
        used = sqlite3.connect(path).execute("PRAGMA page_count").fetchone()[0]
        limit: list[int | None] = [used + 4]
        _limited(store.engine, limit)
        # Incompressible, so that a hundred of them do not fit.
        entries = [[e[0], [*e[1], b"noise", os.urandom(2000)]] for e in settled(100, first=10)]
        with pytest.raises(DatabaseFullError, match="no room on the disk") as caught:
            add(store, entries)
        assert str(path) in str(caught.value)
        assert plain(store.records(REF)) == before
        frontier = store.frontier(REF)
        assert frontier is not None
        assert frontier.folded == 10
        assert store.stats(REF).rows == 10  # status goes on
        limit[0] = None
        assert add(store, entries).new == 100
        assert plain(store.records(REF)) == before + entries


def test_a_read_only_folder_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "ro"
    folder.mkdir()
    (folder / "file").write_bytes(b"")
    with pytest.raises(DatabaseError, match="can't make the folder"):
        open_local(f"sqlite:///{folder}/file/x.db")
    with pytest.raises(DatabaseError, match="can't open the database file"):
        open_local(f"sqlite:///{folder}")


def test_a_file_that_is_no_database_says_so(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(b"no database at all, but long enough to be looked at" * 100)
    with pytest.raises(DatabaseError, match="no SQLite database"):
        open_local(f"sqlite:///{tmp_path}/x.db")


def test_a_locked_database_is_told_within_the_deadline(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with open_local(f"sqlite:///{path}") as store:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseError, match="locked"), deadline(0.2), store.write():
            pass
        with pytest.raises(DeadlineError), deadline(0), store.write():
            pass
        other.close()
        assert add(store, settled(1)).new == 1


def test_a_database_that_does_not_answer_is_unreachable() -> None:
    with pytest.raises(DatabaseUnreachableError, match="does not answer"):
        open_local("postgresql://127.0.0.1:1/none")


@pytest.mark.parametrize("url", ["mysql://x/y", "sqlite://", "nonsense", "sqlite:///:memory:"])
def test_other_urls_are_bad_input(url: str) -> None:
    with pytest.raises(BadInputError):
        open_local(url)


def test_a_hung_postgres_is_cut_at_the_deadline(new_local_url: Callable[[], str]) -> None:
    url = new_local_url()
    if url.startswith("sqlite"):
        return  # a file answers or fails; there is nobody to hang
    with open_local(url) as store:
        assert isinstance(store, SqlStore)
        fault = pytest.raises((DatabaseError, DatabaseUnreachableError))
        with fault, deadline(0.3), store.write() as connection:
            connection.execute(text("SELECT pg_sleep(30)"))
        assert add(store, settled(1)).new == 1

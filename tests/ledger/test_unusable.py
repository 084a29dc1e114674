"""State databases that cannot be used, or no longer: one clear error each."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text

from emq_ops.database.errors import DatabaseError, DatabaseFullError, DatabaseLockedError, DatabaseUnreachableError
from emq_ops.ledger import acts, contents, deaths, stalls  # noqa: F401  # their tables are on the metadata
from emq_ops.ledger.ledger import PROFILE, STATE, open_ledger
from emq_ops.ledger.tokens import next_token
from emq_ops.protocol.errors import BadInputError


def test_a_newer_schema_is_refused(url: str) -> None:
    with open_ledger(url) as ledger, ledger.write() as connection:
        connection.execute(text(f"UPDATE {STATE.version_table} SET version_num = '9999'"))
    with pytest.raises(DatabaseError, match=r"newer version of emq-ops \(schema 9999\)"):
        open_ledger(url)


def test_a_read_only_database_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with open_ledger(f"sqlite:///{path}") as ledger:
        state = ledger.state
    with sqlite3.connect(path) as raw:  # without a WAL beside it, so that it can be read without writing
        raw.execute("PRAGMA journal_mode=DELETE")
        raw.execute("PRAGMA journal_mode=WAL")
    read_only = f"sqlite:///file:{path}?mode=ro&uri=true"
    with open_ledger(read_only) as ledger:
        assert ledger.state == state
        with pytest.raises(DatabaseError, match="read-only"):
            next_token(ledger, "mail")


def test_a_locked_database_is_one_clear_error(tmp_path: Path) -> None:
    with open_ledger(f"sqlite:///{tmp_path}/s.db", replace(PROFILE, busy=0.05)) as ledger:
        other = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseLockedError, match="locked"):
            next_token(ledger, "mail")
        other.execute("ROLLBACK")
        other.close()
        assert next_token(ledger, "mail") == 1


def test_a_full_disk_is_one_clear_error_and_nothing_is_kept(tmp_path: Path) -> None:
    with open_ledger(f"sqlite:///{tmp_path}/s.db") as ledger:
        with ledger.write() as connection:
            pages = connection.execute(text("PRAGMA page_count")).scalar_one()
            connection.execute(text(f"PRAGMA max_page_count={pages}"))
        # The limit belongs to the connection; the pool hands the same one out again.
        rows = [{"name": f"n{number}", "value": "x" * 500} for number in range(2000)]
        with pytest.raises(DatabaseFullError, match="no room"), ledger.write() as connection:
            connection.execute(text("INSERT INTO ledger_identity VALUES (:name, :value)"), rows)
        with ledger.write() as connection:
            connection.execute(text("PRAGMA max_page_count=1000000"))
            assert connection.execute(text("SELECT count(*) FROM ledger_identity")).scalar_one() == 1


def test_no_database_at_all(tmp_path: Path) -> None:
    (tmp_path / "s.db").write_bytes(b"this is no database, but long enough to be looked at" * 100)
    with pytest.raises(DatabaseError, match="no SQLite database"):
        open_ledger(f"sqlite:///{tmp_path}/s.db")
    with pytest.raises(DatabaseError, match="can't make the folder"):
        open_ledger(f"sqlite:///{tmp_path}/s.db/below/s.db")


@pytest.mark.parametrize("pooled", [True, False], ids=["pooled", "new"])
@pytest.mark.parametrize("replaced", [True, False], ids=["replaced", "deleted"])
def test_a_database_that_was_deleted_or_replaced_in_use(tmp_path: Path, pooled: bool, replaced: bool) -> None:
    path = tmp_path / "state.db"
    with open_ledger(f"sqlite:///{path}") as ledger:
        next_token(ledger, "mail")
        if not pooled:
            ledger.engine.dispose()
        for file in tmp_path.iterdir():
            file.rename(f"{file}.away")
        if replaced:
            open_ledger(f"sqlite:///{path}").close()
        before = sorted(tmp_path.iterdir())
        with pytest.raises(DatabaseError, match="was it deleted or replaced in use"):
            next_token(ledger, "mail")
        assert sorted(tmp_path.iterdir()) == before  # nothing was made in its place
        for file in tmp_path.glob("*.away"):
            file.replace(tmp_path / file.stem)
        assert next_token(ledger, "mail") == 2  # it is back


@pytest.mark.parametrize("option", ["uri=maybe", "timeout=abc"])
def test_options_that_cant_be_taken(tmp_path: Path, option: str) -> None:
    with pytest.raises(BadInputError, match="options that can't be taken"):
        open_ledger(f"sqlite:///{tmp_path}/state.db?{option}")


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(DatabaseUnreachableError, match="does not answer"):
        open_ledger("postgresql://nobody:secret@127.0.0.1:1/none")


@pytest.mark.parametrize(
    "url",
    [
        *["", "sqlite://", "mysql://h/d", "sqlite:///:memory:", "no url"],
        *["sqlite:/me:s3cret@x", "postgresql://me:s3cret@h:port/x", "mysql://me:s3cret@h/d", "me:s3cret@h/d"],
    ],
)
def test_what_is_no_state_url(url: str) -> None:
    with pytest.raises(BadInputError) as told:
        open_ledger(url)
    assert "s3cret" not in str(told.value)

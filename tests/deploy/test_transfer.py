"""The state moved: SQLite to PostgreSQL and back, a backup of a state in use, and files that are none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sqlalchemy import MetaData, select

from emq_ops.database.errors import DatabaseError
from emq_ops.deploy.store import transfer
from emq_ops.ledger import runs, tokens
from emq_ops.ledger.deaths import Death, record
from emq_ops.ledger.ledger import Ledger, open_ledger
from emq_ops.protocol import ids
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.server import Server
from tests.deploy.conftest import Desk
from tests.support.postgres import Postgres

CONFIG = "archive: {}\nqueues: {mail: {dead: {keep: 1}, settings: {paused: true}}}\n"


def rows(ledger: Ledger) -> dict[str, list[dict[str, object]]]:
    """Every row of every table but the lock's, and but the note which database was the one before."""
    out: dict[str, list[dict[str, object]]] = {}
    with ledger.read() as connection:
        found = MetaData()
        found.reflect(bind=connection)
        for table in found.sorted_tables:
            if table.name in ("state_lock", "ledger_version"):
                continue
            plain = [
                {k: bytes(v) if isinstance(v, memoryview) else v for k, v in row.items()}
                for row in connection.execute(select(table)).mappings()
                if row.get("name") != "succeeds"
            ]
            out[table.name] = sorted(plain, key=lambda row: json.dumps(row, default=str, sort_keys=True))
    return out


def fill(ledger: Ledger, server: Server, folder: Path) -> None:
    """A state with revisions, journal, bounds, runs, deaths with bytes, and a fencing token."""
    desk = Desk(server, ledger, folder)
    desk.apply(CONFIG)
    desk.apply(CONFIG.replace("true", "false"))
    run = runs.start(ledger, "trim", "mail", holder="x", trigger="command", token=5, policy={})
    with ledger.write() as connection:
        death = Death(ids.mint(), 3, 1, first_seen_ms=5, cause="error", last_error=b"\xff\x00\n", snapshot=b"\x00\x01")
        record(connection, "mail", [death])
        runs.finish(connection, run, runs.DONE, counts={"removed": 1})
    tokens.next_token(ledger, "mail", 41)


def test_to_postgresql_and_back(server: Server, postgres: Postgres, sqlite_url: str, tmp_path: Path) -> None:
    with open_ledger(sqlite_url) as first:
        fill(first, server, tmp_path)
        original, state = rows(first), first.state
        counts = transfer.export(first, tmp_path / "one")
    assert counts["revisions"] == 2
    there = postgres.fresh()
    with open_ledger(there) as second:
        assert transfer.load(second, tmp_path / "one") == {k: v for k, v in counts.items() if v}
    with open_ledger(there) as second:
        assert second.state == state
        assert rows(second) == original
        # It is in use: the numbers that the database gives go on above those that came.
        desk = Desk(server, second, tmp_path)
        assert desk.apply(CONFIG.replace("keep: 1", "keep: 2")) == 3
        assert tokens.next_token(second, "mail", 0) > 41
        moved = rows(second)
        transfer.export(second, tmp_path / "two")
    with open_ledger(f"sqlite:///{tmp_path}/back.db") as third:
        transfer.load(third, tmp_path / "two")
    with open_ledger(f"sqlite:///{tmp_path}/back.db") as third:
        assert rows(third) == moved
        assert Desk(server, third, tmp_path).apply(CONFIG) == 4


def test_a_used_state_takes_no_import(server: Server, sqlite_url: str, tmp_path: Path) -> None:
    with open_ledger(sqlite_url) as ledger:
        fill(ledger, server, tmp_path)
        transfer.export(ledger, tmp_path / "one")
        before = rows(ledger)
        with pytest.raises(DatabaseError, match="the state has revisions already"):
            transfer.load(ledger, tmp_path / "one")
        assert rows(ledger) == before


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda text: "", "no exported state"),
        (lambda text: "hello\n", "no exported state"),
        (lambda text: text.replace('"schema": "', '"schema": "9'), "the export is of schema 9"),
        (lambda text: text[: len(text) // 2], "the file is cut off or damaged"),
        (lambda text: text + '["users", {"id": 1}]\n', "of an unknown table"),
    ],
    ids=["empty", "other", "schema", "cut off", "unknown table"],
)
def test_a_bad_file_changes_nothing(change: object, says: str, server: Server, sqlite_url: str, tmp_path: Path) -> None:
    with open_ledger(sqlite_url) as ledger:
        fill(ledger, server, tmp_path)
        transfer.export(ledger, tmp_path / "one")
    bad = tmp_path / "bad"
    bad.write_text(change((tmp_path / "one").read_text()))  # type: ignore[operator]  # one of the functions above
    with open_ledger(f"sqlite:///{tmp_path}/fresh.db") as fresh:
        before = rows(fresh)
        with pytest.raises(BadInputError, match=says):
            transfer.load(fresh, bad)
        assert rows(fresh) == before


def test_a_backup_of_a_state_in_use(desk: Desk, server: Server, tmp_path: Path) -> None:
    fill(desk.ledger, server, tmp_path)
    copy = tmp_path / "copy"
    with desk.ledger.read() as connection:  # somebody is reading meanwhile
        connection.exec_driver_sql("SELECT count(*) FROM revisions")
        transfer.backup(desk.ledger, copy)
    assert copy.stat().st_mode & 0o077 == 0
    if desk.ledger.shared:
        with open_ledger(f"sqlite:///{tmp_path}/restored.db") as fresh:
            transfer.load(fresh, copy)
        url = f"sqlite:///{tmp_path}/restored.db"
    else:
        url = f"sqlite:///{copy}"
    with open_ledger(url) as restored:
        assert restored.state == desk.ledger.state
        assert rows(restored) == rows(desk.ledger)


def test_an_unwritable_target_is_one_line(light_desk: Desk, tmp_path: Path) -> None:
    for act in (transfer.export, transfer.backup):
        with pytest.raises(BadInputError, match="can't write"):
            act(light_desk.ledger, tmp_path / "no" / "such" / "folder")

"""What was pruned leaves SQLite's files: free pages in steps, and the write-ahead log after one large transaction."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest
from sqlalchemy import text

from emq_ops.database.space import SPARE_BYTES, WORTH_BYTES, give_back
from emq_ops.database.sqlite import WAL_BYTES
from emq_ops.ledger.ledger import Ledger, open_ledger
from emq_ops.ledger.tokens import next_token
from emq_ops.protocol import deadline
from emq_ops.protocol.errors import EmqError

ROWS, ROW_BYTES = 3_000, 10_000


def fill(ledger: Ledger) -> None:
    with ledger.write() as connection:
        connection.execute(text("CREATE TABLE IF NOT EXISTS bulk (id INTEGER PRIMARY KEY, body BLOB)"))
        rows = [{"body": b"x" * ROW_BYTES} for _ in range(ROWS)]
        connection.execute(text("INSERT INTO bulk (body) VALUES (:body)"), rows)


def empty(ledger: Ledger) -> None:
    with ledger.write() as connection:
        connection.execute(text("DELETE FROM bulk"))


@pytest.mark.long
def test_a_pruned_database_gives_its_space_back_beside_writers(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with open_ledger(f"sqlite:///{path}") as ledger:
        fill(ledger)
        empty(ledger)
        assert path.stat().st_size > ROWS * ROW_BYTES
        stop, faults = threading.Event(), list[EmqError]()

        def write() -> None:
            while not stop.is_set():
                try:
                    next_token(ledger, "mail")
                except EmqError as fault:
                    faults.append(fault)

        beside = threading.Thread(target=write)
        beside.start()
        gone = give_back(ledger)
        stop.set()
        beside.join()
        assert faults == []
        assert gone > ROWS * ROW_BYTES - SPARE_BYTES
        assert give_back(ledger) == 0
        assert ledger.state
    assert path.stat().st_size < 2 * SPARE_BYTES


def test_it_ends_in_time_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with open_ledger(f"sqlite:///{path}") as ledger:
        fill(ledger)
        empty(ledger)
        with deadline.deadline(0.0):
            first = give_back(ledger)
        assert first == 0
        assert give_back(ledger) > 0


def test_a_file_of_an_earlier_version_is_rewritten_once(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with open_ledger(f"sqlite:///{path}") as ledger:
        state = ledger.state
    with sqlite3.connect(path) as raw:
        raw.execute("PRAGMA journal_mode=DELETE")
        raw.execute("PRAGMA auto_vacuum=NONE")
        raw.execute("VACUUM")
    with open_ledger(f"sqlite:///{path}") as ledger:
        fill(ledger)
        empty(ledger)
        assert path.stat().st_size > WORTH_BYTES
        assert give_back(ledger) > WORTH_BYTES
        assert ledger.state == state
        fill(ledger)
        empty(ledger)
        assert give_back(ledger) > WORTH_BYTES  # in steps now
    assert path.stat().st_size < 2 * SPARE_BYTES


def test_the_write_ahead_log_does_not_stay_at_its_peak(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with open_ledger(f"sqlite:///{path}") as ledger:
        fill(ledger)
        wal = Path(f"{path}-wal")
        assert wal.stat().st_size > 2 * WAL_BYTES
        for _ in range(3):  # the first write after a checkpoint begins the log anew
            next_token(ledger, "mail")
        assert wal.stat().st_size <= WAL_BYTES

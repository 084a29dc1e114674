"""What repeats is one row: how often, from when to when; what did something is a row of its own."""

from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from emq_ops.ledger import runs
from emq_ops.ledger.holds import Hold, hold, release
from emq_ops.ledger.ledger import PROFILE, Ledger, open_ledger
from emq_ops.ledger.pending_runs import PendingRuns
from emq_ops.passes.frame.context import Context
from emq_ops.passes.frame.order import Order
from emq_ops.protocol.errors import EmqError
from emq_ops.protocol.fence import Fence
from emq_ops.protocol.server import Server
from tests.support.passing import leading, run_by
from tests.support.toy_pass import ACT, TOY, ToyPolicy


def run(server: Server, ledger: Ledger, fence: Fence) -> None:
    run_by(TOY, server, Order("mail", ToyPolicy()), ledger, fence)


def fail(server: Server, ledger: Ledger, fence: Fence, text: str) -> None:
    def act(_context: Context) -> int:
        raise EmqError(text)

    ACT[:] = [act]
    with pytest.raises(EmqError):
        run(server, ledger, fence)


def rows(ledger: Ledger) -> list[tuple[str, int, str | None]]:
    """The newest first: status, how often, and why."""
    return [(row.status, row.counts.get(runs.TIMES, 1), row.error) for row in runs.latest(ledger)]


def test_failures_alike_are_one_row_until_a_run_did_something(server: Server, ledger: Ledger) -> None:
    with leading(server, ledger, "mail") as fence:
        fail(server, ledger, fence, "no luck on port 4711")
        first = runs.latest(ledger)[0]
        fail(server, ledger, fence, "another reason")
        fail(server, ledger, fence, "no luck on port 4712")
        fail(server, ledger, fence, "no luck on port 4713")
        assert rows(ledger) == [("failed", 3, "no luck on port 4713"), ("failed", 1, "another reason")]
        last = runs.latest(ledger)[0]
        assert last.started_ms == first.started_ms
        assert last.ended_ms is not None
        run(server, ledger, fence)
        fail(server, ledger, fence, "no luck on port 4714")
        assert [row[:2] for row in rows(ledger)] == [("failed", 1), ("done", 1), ("failed", 3), ("failed", 1)]


def test_a_failed_run_that_did_something_is_a_row_of_its_own(server: Server, ledger: Ledger) -> None:
    def half(context: Context) -> int:
        context.report.toys += 1
        raise EmqError("no luck")

    with leading(server, ledger, "mail") as fence:
        for _ in range(2):
            ACT[:] = [half]
            with pytest.raises(EmqError):
                run(server, ledger, fence)
    assert [row.counts for row in runs.latest(ledger)] == [{"toys": 1}, {"toys": 1}]


def test_refusals_of_a_hold_are_one_row(server: Server, ledger: Ledger) -> None:
    now = server.now_ms("mail")
    hold(ledger, Hold("mail", now, now + 60_000, "ops"))
    with leading(server, ledger, "mail") as fence:
        for _ in range(3):
            run(server, ledger, fence)
        assert rows(ledger) == [("refused", 3, "held by ops")]
        release(ledger, "mail")
        run(server, ledger, fence)
        assert [row[:2] for row in rows(ledger)] == [("done", 1), ("refused", 3)]


def test_what_a_failed_run_did_while_the_ledger_was_away_is_written_later(server: Server, tmp_path: Path) -> None:
    """A trim that can't say what it removed: its counts are nowhere else."""
    with contextlib.closing(sqlite3.connect(tmp_path / "s.db", isolation_level=None)) as other:

        def half(context: Context) -> int:
            context.report.toys += 1
            other.execute("BEGIN IMMEDIATE")
            raise EmqError("no luck")

        with (
            open_ledger(f"sqlite:///{tmp_path}/s.db", replace(PROFILE, busy=0.001)) as ledger,
            leading(server, ledger, "mail") as fence,
        ):
            unwritten = PendingRuns(ledger)
            ACT[:] = [half]
            with pytest.raises(EmqError, match="no luck"):
                run_by(TOY, server, Order("mail", ToyPolicy()), ledger, fence, unwritten=unwritten)
            other.execute("ROLLBACK")
            [row] = runs.latest(ledger)
            with ledger.write() as connection:  # what others found out about it meanwhile
                runs.at_least(connection, row.id, "toys", 2)
            unwritten.put()
            [row] = runs.latest(ledger)
            assert (row.status, row.counts, row.error) == ("failed", {"toys": 2}, "no luck")

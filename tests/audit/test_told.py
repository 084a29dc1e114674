"""What the ledger tells: interruptions, and the life of a job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from emq_ops.audit.life import life_of
from emq_ops.audit.page import life_page, restarts_page
from emq_ops.audit.restarts import audit_restarts
from emq_ops.ledger import acts as book
from emq_ops.ledger import interruptions as cuts
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.acts import act, choose
from emq_ops.passes.selection import Selection
from emq_ops.passes.undo import undo
from emq_ops.protocol import ids
from emq_ops.protocol.errors import BadInputError, KindError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server, connect
from emq_ops.protocol.transitions import claims, jobs, settle
from tests.audit.cli import emq
from tests.audit.pages import check_page
from tests.audit.working import LONG_MS, failed, lapse, put, stalled, swept
from tests.support.valkey import Valkey


def test_the_numbers_of_a_restart(durable: Valkey, ledger: Ledger, state: str) -> None:
    """In flight: 6 exempted, 2 completed by their workers, 1 dead of another stall."""
    with connect(durable.url) as server:
        swept(server, ledger)
        q = Queue(server, "orders")
        put(q, 9)
        taken = claims.claim_batch(q, LONG_MS, 9)
        lapse(q, [claim.job for claim in taken[:6]], -400)
    durable.restart()
    with connect(durable.url) as server:
        q = Queue(server, "orders")
        swept(server, ledger)  # the census: nine
        for claim in taken[6:8]:
            settle.complete(q, claim.job, claim.token)
        done = 0
        while done < 6:
            done += swept(server, ledger).exempted
        audit = audit_restarts(ledger)
    [told] = audit.told
    row = told.as_row()
    wanted = {"kind": "restart", "in_flight": 9, "recovered": 6, "exempted": 6, "died": 0, "vanished": 0, "others": 3}
    assert {name: row[name] for name in wanted} == wanted
    assert row["jobs"] == {
        "exempted": sorted(c.job for c in taken[:6]),
        "others": sorted(c.job for c in taken[6:]),
    }
    assert row["started"] < row["ended"]
    ran = emq("audit", "restarts", "--state", state, "--output", "json")
    assert ran.code == 0
    document = json.loads(ran.out)
    assert document["interruptions"] == [json.loads(json.dumps(row))]
    page = check_page(restarts_page(audit))
    assert taken[0].job in page.text
    assert emq("audit", "restarts", "nobody", "--state", state).code == 4
    assert emq("audit", "restarts", "orders", "--state", state, "--since", "1s", "--output", "csv").code == 0


def test_without_a_ledger(tmp_path: Path) -> None:
    ran = emq("audit", "restarts", "--state", f"sqlite:///{tmp_path}/none.db", "--output", "json")
    assert (ran.code, json.loads(ran.out)["interruptions"]) == (0, [])
    assert emq("audit", "what-if", "--max-stalled", "2", "--state", f"sqlite:///{tmp_path}/none.db").code == 4
    assert list(tmp_path.iterdir()) == []


def test_the_life_of_a_job(server: Server, valkey: Valkey, ledger: Ledger, state: str) -> None:
    q = Queue(server, "orders")
    [job] = stalled(q, 1)
    swept(server, ledger, max_stalled=2)
    claims.claim(q, LONG_MS)
    lapse(q, [job])
    swept(server, ledger, max_stalled=2)
    removal = act(server, book.REMOVE, choose(server, "orders", Selection()), ledger, why="spring cleaning")
    undo(server, removal.run or "", ledger)
    act(server, book.REQUEUE, choose(server, "orders", Selection()), ledger)
    life = life_of(job, server=server, queues=["mail", "orders"], ledger=ledger)
    assert [event.what for event in life.events] == [
        "minted",
        "stalled",
        "stalled",
        "died",
        "remove",
        "undone",
        "revived",
        "requeue",
    ]
    assert life.live == [{"queue": "orders", "state": "pending"}]
    assert life.row["attempts"] == "2"
    told = " ".join(event.text for event in life.events)
    assert "spring cleaning" in told
    assert removal.run in [event.facts.get("run") for event in life.events]
    check_page(life_page(life))
    ran = emq("audit", "job", job, "--url", valkey.url, "--state", state, "--output", "json")
    assert [event["what"] for event in json.loads(ran.out)["events"]] == [event.what for event in life.events]
    ran = emq("audit", "job", job, "--url", valkey.url, "--state", state)
    assert "now: orders: pending" in ran.err
    ran = emq("audit", "job", job, "--url", "unix:///nowhere", "--state", state)
    assert ran.code == 0
    assert "without the live row" in ran.err


def test_a_job_that_is_gone_is_told_with_what_the_ledger_keeps(
    server: Server, valkey: Valkey, ledger: Ledger, state: str
) -> None:
    q = Queue(server, "orders")
    job = failed(q, b"boom", payload=b"{order: 7}\x1b[2J")
    jobs.add_log(q, job, b"a line \x1b[31m")
    where = ("--url", valkey.url, "--state", state)
    for kept in (False, True):
        if kept:
            act(server, book.REMOVE, choose(server, "orders", Selection()), ledger)
        life = json.loads(emq("audit", "job", job, *where, "--output", "json").out)
        assert (life["row"]["payload"], life["logs"]) == ("{order: 7}\\x1b[2J", ["a line \\x1b[31m"])
        assert (life["kept_ms"] is not None, life["live"] == []) == (kept, kept)
        ran = emq("audit", "job", job, *where)
        assert "{order: 7}" in ran.out
        assert "a line" in ran.out
        assert ("as the ledger keeps it" in ran.err) == kept
        page = check_page(emq("audit", "job", job, *where, "--html", "-").out)
        assert ("as the ledger keeps it" in page.text) == kept


@pytest.mark.parametrize("lost", [("runs",), ("interruptions",), ("stalls",), ("deaths",), ("census", "act_items")])
def test_a_ledger_with_gaps_is_told_as_far_as_it_goes(
    server: Server, valkey: Valkey, ledger: Ledger, state: str, lost: tuple[str, ...]
) -> None:
    """Rows that retention, or somebody, took away: what refers to them is told all the same."""
    q = Queue(server, "orders")
    swept(server, ledger)
    gone = stalled(q, 2)
    lapse(q, gone, 0)  # after the sweep
    cuts.mark_lost(ledger, ["orders"])
    assert swept(server, ledger, restart="count", max_stalled=1).dead == 2
    removal = act(server, book.REMOVE, choose(server, "orders", Selection(jobs=(gone[0],))), ledger)
    undo(server, removal.run or "", ledger)
    where = ("--url", valkey.url, "--state", state, "--output", "json")
    with ledger.write() as connection:
        for name in lost:
            connection.execute(text(f"DELETE FROM {name}"))

    def told(*argv: str) -> Any:
        ran = emq("audit", *argv, *where)
        assert ran.code == 0, ran
        return json.loads(ran.out)

    dead = told("dead", "orders")
    assert dead["dead"] == 2
    assert dead["unrecorded"] == (2 if lost == ("deaths",) else 0)
    if lost != ("deaths",):
        assert {one["job"] for one in dead["suspects"]} == (set() if lost == ("interruptions",) else set(gone))
    assert len(told("restarts")["interruptions"]) == (lost != ("interruptions",))
    assert told("what-if", "--max-stalled", "2")["died"] == 2
    for job in gone:
        assert told("job", job)["live"] == [{"queue": "orders", "state": "dead"}]
    assert act(server, book.REQUEUE, choose(server, "orders", Selection(), ledger), ledger).done == 2


def test_a_job_that_nobody_knows(server: Server, ledger: Ledger) -> None:
    with pytest.raises(BadInputError, match="nobody knows"):
        life_of(ids.mint(), server=server, queues=["orders"], ledger=ledger)
    for odd in ("JOB1", "GRP0STBBIRAKHo", ""):
        with pytest.raises((BadInputError, KindError)):
            life_of(odd, server=server, queues=[], ledger=None)

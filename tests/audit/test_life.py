"""The life of a job, from ledger, archive and server; a ledger with gaps is read as far as it goes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sqlalchemy import text

from emq_ops.audit.life import LifeEvent, life_of
from emq_ops.audit.page import life_page
from emq_ops.ledger import acts, deaths, interruptions
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.acts.act import act
from emq_ops.passes.acts.options import ActOptions
from emq_ops.passes.acts.selection import DeadSelection
from emq_ops.passes.acts.targets import choose
from emq_ops.passes.acts.undo import undo_run
from emq_ops.protocol import ids
from emq_ops.protocol.errors import BadInputError, KindError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import claims, jobs
from tests.audit.pages import check_page
from tests.audit.working import LONG_MS, failed, lapse, stalled, swept
from tests.support.cli import emq
from tests.support.valkey import Valkey


def test_the_life_of_a_job(server: Server, valkey: Valkey, ledger: Ledger, state: str) -> None:
    q = Queue(server, "orders")
    [job] = stalled(q, 1)
    swept(server, ledger, max_stalled=2)
    claims.claim(q, LONG_MS)
    lapse(q, [job])
    swept(server, ledger, max_stalled=2)
    removal = act(
        server, acts.REMOVE, choose(server, "orders", DeadSelection()), ledger, ActOptions(why="spring cleaning")
    )
    undo_run(server, removal.run or "", ledger)
    act(server, acts.REQUEUE, choose(server, "orders", DeadSelection()), ledger)
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
            act(server, acts.REMOVE, choose(server, "orders", DeadSelection()), ledger)
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
    interruptions.mark_lost(ledger, ["orders"])
    assert swept(server, ledger, restart="count", max_stalled=1).dead == 2
    removal = act(server, acts.REMOVE, choose(server, "orders", DeadSelection(jobs=(gone[0],))), ledger)
    undo_run(server, removal.run or "", ledger)
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
    assert act(server, acts.REQUEUE, choose(server, "orders", DeadSelection(), ledger), ledger).done == 2


def test_a_job_that_nobody_knows(server: Server, ledger: Ledger) -> None:
    with pytest.raises(BadInputError, match="no job JOB"):
        life_of(ids.mint(), server=server, queues=["orders"], ledger=ledger)
    for odd in ("JOB1", "GRP0STBBIRAKHo", ""):
        with pytest.raises((BadInputError, KindError)):
            life_of(odd, server=server, queues=[], ledger=None)


def test_the_instant_of_a_death_is_the_best_that_is_known(server: Server, ledger: Ledger) -> None:
    """First sight is a bound; a record of the stream knows the instant; between them stands what is known before."""
    q = Queue(server, "orders")
    job = failed(q, b"boom")
    swept(server, ledger)  # sees it dead
    [death] = deaths.iterate(ledger, job=job)

    def died(*archived: LifeEvent) -> LifeEvent:
        life = life_of(job, server=server, queues=["orders"], ledger=ledger, archived=archived)
        [event] = [event for event in life.events if event.what == "died"]
        return event

    unknown = died()
    assert unknown.at_ms == death.first_seen_ms
    assert unknown.facts["not_before_ms"] == ids.parse(job).unix_ms
    assert "first seen then, it died after" in unknown.text
    minted = ids.parse(job).unix_ms
    known = died(LifeEvent(minted, "archive", "dead", "dead in orders, stream completions"))
    assert (known.at_ms, known.facts["first_seen_ms"]) == (minted, death.first_seen_ms)
    assert "its record says when" in known.text
    later = LifeEvent(death.first_seen_ms + 1, "archive", "dead", "another death, later")
    assert died(later).at_ms == death.first_seen_ms

"""Queues that stand still without an error: an alert once, a mark in `ps`, and a word when it is over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from emq_ops.daemon import wedged
from emq_ops.daemon.events import QueueMoves
from emq_ops.daemon.looks import QueueLooks
from emq_ops.daemon.wedged import Wedged
from emq_ops.ledger import alerts, marks
from emq_ops.ledger.ledger import Ledger, open_ledger
from emq_ops.overview import wedges
from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import claims, control, enqueue, repeat, settle
from tests.support.cli import emq
from tests.support.daemons import site, wait_for
from tests.support.valkey import Valkey

LANE = "GRP0SSBKAh61tG"


@pytest.fixture
def q(server: Server) -> Queue:
    return Queue(server, "orders")


class Looking:
    """A `Wedged` whose looks count as long apart."""

    def __init__(self, q: Queue, ledger: Ledger) -> None:
        self.emitted: list[Any] = []
        self.wedged = Wedged(ledger, self.emitted.append)
        self._looks = QueueLooks(q.server, lambda: {q.name: []})
        self._ledger, self._queue = ledger, q.name

    def looks(self, times: int = 3) -> list[str]:
        """The kinds that are told after so many looks more."""
        for _ in range(times):
            self._looks.round()
            self.wedged.judge(self._looks.found)
        return sorted(self.wedged.told.get(self._queue, {}))

    def alerted(self) -> list[str]:
        return [alert.kind for alert in alerts.listing(self._ledger)]


@pytest.fixture
def looking(q: Queue, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> Looking:
    monkeypatch.setattr(wedged, "STANDS_MS", 0)
    return Looking(q, ledger)


def test_a_queue_without_workers(q: Queue, looking: Looking) -> None:
    assert looking.looks() == []
    for _ in range(3):
        enqueue.enqueue(q, ids.mint(), b"x")
    assert looking.looks() == ["no_workers"]
    assert looking.looks(5) == ["no_workers"]
    assert looking.alerted() == ["no_workers"]  # once
    claim = claims.claim(q, 60_000)
    assert claim is not None
    settle.complete(q, claim.job, claim.token)
    assert looking.looks(1) == []
    assert [type(event) for event in looking.emitted if isinstance(event, QueueMoves)] == [QueueMoves]
    control.pause_queue(q)
    assert looking.looks() == []  # it waits on purpose


def test_jobs_wait_though_others_are_in_flight(q: Queue, looking: Looking) -> None:
    for _ in range(3):
        enqueue.enqueue(q, ids.mint(), b"x")
    claims.claim(q, 60_000)
    assert looking.looks() == ["unclaimed"]
    control.set_concurrency(q, 1)
    assert looking.looks() == []  # at its ceiling


def test_lanes_at_their_limit_with_nothing_in_flight(q: Queue, looking: Looking) -> None:
    control.limit_lane(q, LANE, 1)
    enqueue.enqueue(q, ids.mint(), b"x", group=LANE)
    q.server.write("HSET", q.keys.gactive, LANE, "1")  # as the reference's delay leaves it
    assert looking.looks() == ["lanes_full"]
    assert looking.alerted() == ["lanes_full"]


def test_a_repeatable_that_nobody_pumps(q: Queue, looking: Looking, monkeypatch: pytest.MonkeyPatch) -> None:
    repeat.register(q, "nightly", 60_000, b"{}")
    assert looking.looks() == []
    monkeypatch.setattr(wedges, "OVERDUE_MS", -1)
    assert looking.looks() == ["repeatable_overdue"]


@pytest.mark.usefixtures("server")
def test_ps_has_a_mark(tmp_path: Path, valkey: Valkey) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(
        f"server: {{url: '{valkey.url}'}}\nstate: {{url: 'sqlite:///{tmp_path}/s.db'}}\n"
        "queues: {orders: {stalled: {}}, mail: {stalled: {}}}\n"
    )
    assert emq("-c", file, "apply", "--yes").code == 0
    with open_ledger(f"sqlite:///{tmp_path}/s.db") as ledger:
        facts = {"wedged": {"orders": {"no_workers": "3 jobs wait"}}}
        marks.beat(ledger, marks.Living("me", 0, 0, 1, 2, facts))
    rows = emq("-c", file, "ps", "--output", "json").json
    assert {row["queue"]: row["wedged"] for row in rows} == {"orders": "3 jobs wait", "mail": None}
    assert "3 jobs wait" in emq("-c", file, "ps").out


def test_it_must_stand_for_a_while(q: Queue, ledger: Ledger) -> None:
    enqueue.enqueue(q, ids.mint(), b"x")
    assert Looking(q, ledger).looks() == []


SITE = """
server: {{url: "{url}"}}
state: {{url: "sqlite:///state.db"}}
defaults: {{stalled: {{every: 5s}}}}
queues: {{orders: {{}}, mail: {{}}, lanes: {{}}, nightly: {{}}, well: {{}}}}
"""


@pytest.mark.soak(minutes=3)
def test_a_daemon_tells_all_of_them_and_ps_too(tmp_path: Path, valkey: Valkey, server: Server) -> None:
    orders, mail, lanes, nightly, well = (Queue(server, n) for n in ("orders", "mail", "lanes", "nightly", "well"))
    for q in (orders, mail, mail):
        enqueue.enqueue(q, ids.mint(), b"x")
    claims.claim(mail, 3_600_000)
    control.limit_lane(lanes, LANE, 1)
    enqueue.enqueue(lanes, ids.mint(), b"x", group=LANE)
    server.write("HSET", lanes.keys.gactive, LANE, "1")
    for q in (nightly, well):
        repeat.register(q, "report", 3_600_000, b"{}")
    server.write("ZADD", nightly.keys.repeat, server.now_ms("nightly") - 10 * wedges.OVERDUE_MS, "report")
    wanted = {"orders": "no_workers", "mail": "unclaimed", "lanes": "lanes_full", "nightly": "repeatable_overdue"}
    with site(tmp_path / "site", SITE.format(url=valkey.url)) as here:
        here.run("apply", "--yes")
        daemon = here.up()

        def marked() -> set[str]:
            return {row["queue"] for row in here.json("ps") if row["wedged"]}

        wait_for(lambda: marked() == wanted.keys(), 3 * wedged.STANDS_MS / 1000)
        with open_ledger(f"sqlite:///{here.folder}/state.db") as ledger:
            assert {one.queue: one.kind for one in alerts.listing(ledger) if one.queue in wanted} == wanted
        assert sorted(one["kind"] for one in daemon.events("alerted")) == sorted(wanted.values())
        claim = claims.claim(orders, 60_000)
        assert claim is not None
        settle.complete(orders, claim.job, claim.token)
        wait_for(lambda: marked() == wanted.keys() - {"orders"})
        daemon.stop()

"""A daemon sees who fires the repeatables of its queues, and tells where nobody does."""

from __future__ import annotations

from typing import Any

from emq_ops.daemon.pumps import Pumps
from emq_ops.ledger import alerts
from emq_ops.ledger.ledger import Ledger
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import repeat
from tests.support.pumps import other_pump


def test_another_pump_is_seen_between_two_looks(server: Server, ledger: Ledger) -> None:
    q, emitted = Queue(server, "mail"), list[Any]()
    pumps = Pumps(server, ledger, emitted.append)
    repeat.register(q, "tick", 3_600_000, b"t")  # by an application: nobody marked it
    pumps.look(["mail"])
    assert alerts.competing(ledger) == []
    for _ in range(2):
        other_pump(q, "tick")
        pumps.look(["mail"])
    [rival] = alerts.competing(ledger)
    assert (rival.queue, rival.kind) == ("mail", "pump")
    assert [one.kind for one in alerts.listing(ledger)] == ["competitor"]  # once


def test_repeatables_by_the_calendar_that_nobody_fires_are_an_alert_once(server: Server, ledger: Ledger) -> None:
    q, emitted = Queue(server, "mail"), list[Any]()
    pumps = Pumps(server, ledger, emitted.append)
    repeat.replace_cron(q, "nightly", "0 3 * * *", "UTC", b"n")
    for promoted in ((), (), ("mail",), ()):
        pumps.look(["mail"], promoted)
    told = alerts.listing(ledger)
    assert [(one.queue, one.kind) for one in told] == [("mail", "repeatable_overdue")] * 2
    assert "which only emq-ops fires" in told[0].text

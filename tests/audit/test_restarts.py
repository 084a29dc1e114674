"""Each interruption with what was in flight across it, and what became of that."""

from __future__ import annotations

import json
from pathlib import Path

from emq_ops.audit.page import restarts_page
from emq_ops.audit.restarts import audit_restarts
from emq_ops.ledger.ledger import Ledger
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import connect
from emq_ops.protocol.transitions import claims, settle
from tests.audit.pages import check_page
from tests.audit.working import LONG_MS, lapse, put, swept
from tests.support.cli import emq
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
    [told] = audit.outcomes
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

"""The promote pass: what is due goes to wait, under the queue's lease, counted once whatever becomes of a reply."""

from __future__ import annotations

from typing import Any

import pytest

from emq_ops.ledger import runs
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.frame.context import Services
from emq_ops.passes.frame.frame import predict_pass
from emq_ops.passes.frame.order import Order
from emq_ops.passes.promote.declared import PROMOTE, PromotePolicy
from emq_ops.passes.promote.promote import SLICE
from emq_ops.passes.promote.report import PromoteReport
from emq_ops.protocol.errors import FenceError
from emq_ops.protocol.fence import Fence
from emq_ops.protocol.ids import mint
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions.enqueue import schedule_in
from tests.support.keyspace import dump
from tests.support.passing import leading, run_by, until

LANE = "GRP0SSBKAh61tG"


def due(q: Queue, count: int, group: str | None = None) -> list[str]:
    """Scheduled jobs whose time has come."""
    jobs = [mint() for _ in range(count)]
    for job in jobs:
        schedule_in(q, job, b"x", 1, group=group)
    until(lambda: q.server.read("ZCOUNT", q.keys.schedule, "-inf", q.server.now_ms(q.name)) >= count, "due")
    return jobs


def promote(server: Server, ledger: Ledger, **policy: Any) -> PromoteReport:
    with leading(server, ledger, "mail") as fence:
        report: PromoteReport = run_by(PROMOTE, server, Order("mail", PromotePolicy(**policy)), ledger, fence)
        return report


def test_what_is_due_goes_to_wait(server: Server, ledger: Ledger, mail: Queue) -> None:
    plain, grouped = due(mail, 2), due(mail, 1, LANE)
    later = mint()
    schedule_in(mail, later, b"x", 60_000)
    report = promote(server, ledger)
    assert (report.promoted, sorted(report.promoted_jobs)) == (3, sorted(plain + grouped))
    assert sorted(server.read("ZRANGE", mail.keys.pending, 0, -1)) == sorted(job.encode() for job in plain)
    assert server.read("ZRANGE", mail.keys.lane(LANE), 0, -1) == [grouped[0].encode()]
    assert server.read("ZRANGE", mail.keys.schedule, 0, -1) == [later.encode()]
    [run] = runs.latest(ledger)
    assert (run.id, run.kind, run.status, run.counts) == (report.run, "promote", "done", {"promoted": 3})
    assert not server.read("EXISTS", mail.keys.acted(run.id))


def test_a_limit_bounds_the_run_and_not_the_slice(server: Server, ledger: Ledger, mail: Queue) -> None:
    due(mail, SLICE + 20)
    assert promote(server, ledger, limit=SLICE + 5).promoted == SLICE + 5
    assert promote(server, ledger).promoted == 15


def test_a_prediction_comes_true_and_changes_nothing(server: Server, ledger: Ledger, mail: Queue) -> None:
    jobs = due(mail, 3)
    before = dump(server)
    found = predict_pass(Services(server, None), PROMOTE, Order("mail", PromotePolicy(limit=2)))
    assert (found.count, list(found.jobs), found.report.promoted) == (2, jobs[:2], 2)
    assert dump(server) == before
    assert promote(server, ledger, limit=2).promoted_jobs == jobs[:2]


def test_without_our_lease_nothing_moves(server: Server, ledger: Ledger, mail: Queue) -> None:
    due(mail, 2)
    with leading(server, ledger, "mail") as fence:
        stale = Fence(fence.keys, fence.state, fence.token + 1, fence.run)
        before = dump(server)
        with pytest.raises(FenceError):
            run_by(PROMOTE, server, Order("mail", PromotePolicy()), ledger, stale)
        assert dump(server) == before
    [run] = runs.latest(ledger)
    assert (run.status, run.counts) == ("failed", {})

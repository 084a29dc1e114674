"""A dead set far beyond what a page, a slice or a script holds."""

from __future__ import annotations

import pytest

from emq_ops.ledger import deaths
from emq_ops.ledger.ledger import Ledger
from emq_ops.policy.models import DeadPolicy
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from tests.support.passing import dead_of, kill_row, leading, trim


@pytest.mark.parametrize("count", [6_000, pytest.param(1_000_000, marks=pytest.mark.soak(minutes=3))])
def test_keep_ten_of_very_many(server: Server, ledger: Ledger, mail: Queue, count: int) -> None:
    dead: list[str] = []
    for _ in range(0, count, 2_000):
        dead += kill_row(mail, 2_000)
    with leading(server, ledger, "mail", lease_ms=1_800_000) as fence:  # nobody renews it here
        report = trim(server, "mail", DeadPolicy(keep=10), ledger, fence)
    assert (report.dead_before, report.removed, report.left) == (count, count - 10, 10)
    assert dead_of(mail) == sorted(dead)[-10:]
    with ledger.read() as connection:
        assert deaths.count_open(connection, "mail") == 10

"""The leases of many queues: what is in hand is kept, however long the rest takes."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from emq_ops.daemon.leads import Leads
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.events import Event, LeaseTaken
from emq_ops.protocol.server import Server

LEASE_MS = 5_000
QUEUES = [f"q{n}" for n in range(1_600)]


@pytest.mark.long
def test_leases_are_kept_while_others_are_asked_for(server: Server, ledger: Ledger) -> None:
    said: list[str] = []

    def emit(event: Event) -> None:
        said.append(event.name)
        if isinstance(event, LeaseTaken):
            time.sleep(0.004)  # work in proportion to queues: all together longer than a lease

    leads = Leads(server, ledger, LEASE_MS, emit)
    leads.start()
    try:
        since = time.monotonic()
        leads.ask(QUEUES)
        assert time.monotonic() - since > LEASE_MS / 1000
        time.sleep(LEASE_MS / 1000)  # every lease was renewed once at the least, or is gone
        assert leads.led == len(QUEUES), Counter(said)
        assert set(said) == {"lease_taken"}
    finally:
        leads.stop()
        leads.release()

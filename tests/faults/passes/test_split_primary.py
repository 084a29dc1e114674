"""A failover under Sentinels whose old primary goes on for a while: who is connected there is on the wrong side."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from sqlalchemy import update

from emq_ops.ledger.interruptions import Contact, contact_of
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.schema import contacts
from emq_ops.passes.events import PassStarted
from emq_ops.policy.models import StalledPolicy
from emq_ops.protocol.connection.subscription import Subscription
from emq_ops.protocol.errors import ReconnectedError
from emq_ops.protocol.ids import mint
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server, connect
from emq_ops.protocol.transitions.enqueue import enqueue
from tests.support.cluster import ask, until
from tests.support.passing import add, lapse, leading, sweep, swept, take
from tests.support.sentinel import Sentinel

LEASE_MS = 1_500
COUNT = 12


@pytest.fixture
def watched() -> Iterator[Sentinel]:
    with Sentinel() as opened:
        yield opened


def test_the_old_primary_is_left_though_it_lives_on(watched: Sentinel) -> None:
    with connect(watched.url) as server:
        q = Queue(server, "mail")
        before = server.run_id("mail")
        with server.session("mail") as session, server.subscribe(q.keys.events) as events:
            old = watched.promote()
            until("it is left", lambda: server.run_id("mail") != before)
            with pytest.raises(ReconnectedError, match="another node is the primary now"):
                session.read("PING")
            until("it listens there", lambda: _hears(server, events, q.keys.events))
            assert events.gaps == 1
        assert enqueue(q, mint(), b"x")
        assert ask(old, "ZCARD", q.keys.pending) == 0
        [new] = [node for node in watched.nodes if node is not old]
        assert ask(new, "ZCARD", q.keys.pending) == 1


def _hears(server: Server, events: Subscription, channel: str) -> bool:
    server.write("PUBLISH", channel, "x")
    return events.get(0.05) is not None


@pytest.mark.parametrize("clock", ["same", "ahead"])
def test_sweeps_on_the_old_side_count_for_nothing_on_the_new_one(ledger: Ledger, watched: Sentinel, clock: str) -> None:
    old, new = watched.primary, watched.replica
    with connect(f"redis://127.0.0.1:{old.port}") as before, connect(f"redis://127.0.0.1:{new.port}") as after:
        q = Queue(before, "mail")
        jobs = add(q, COUNT)
        take(q, COUNT, LEASE_MS)
        swept(before, ledger, "mail", lease_ms=LEASE_MS)
        watched.promote()
        # Workers and daemon stay where they are, for longer than a lease.
        for _ in range(3):
            ask(old, "ZADD", q.keys.active, *[x for job in jobs for x in (before.now_ms("mail") + 60_000, job)])
            time.sleep(LEASE_MS / 2000)
            assert swept(before, ledger, "mail", lease_ms=LEASE_MS).dead == 0
        there = Queue(after, "mail")
        lapse(there)
        assert after.read("ZCARD", there.keys.active) == COUNT
        if clock == "ahead":  # the old one's host: what it said of time is nothing to go by
            with ledger.write() as connection:
                connection.execute(update(contacts).values(swept_ms=contacts.c.swept_ms + 3_600_000))
        report = swept(after, ledger, "mail", lease_ms=LEASE_MS)
        assert (report.exempted, report.dead) == (COUNT, 0)
        # Later ones are this life's.
        take(there, COUNT)
        lapse(there)
        assert swept(after, ledger, "mail", lease_ms=LEASE_MS).dead == COUNT


def test_a_sweep_of_the_old_side_that_ends_late_moves_no_mark(ledger: Ledger, watched: Sentinel) -> None:
    old, new = watched.primary, watched.replica
    with connect(f"redis://127.0.0.1:{old.port}") as before, connect(f"redis://127.0.0.1:{new.port}") as after:
        q = Queue(before, "mail")
        add(q, COUNT)
        take(q, COUNT, LEASE_MS)
        watched.promote()
        marks: list[Contact | None] = []

        def meanwhile(event: object) -> None:
            if isinstance(event, PassStarted) and not marks:
                marks.append(None)
                swept(after, ledger, "mail", lease_ms=LEASE_MS)
                with ledger.read() as connection:
                    marks[0] = contact_of(connection, "mail")

        with leading(before, ledger, "mail") as fence:
            sweep(before, "mail", StalledPolicy(lease_ms=LEASE_MS), ledger, fence, emit=meanwhile)
        with ledger.read() as connection:
            assert contact_of(connection, "mail") == marks[0]
        assert marks[0] is not None
        assert marks[0].run_id == after.run_id("mail")

"""A failover under Sentinels whose old primary goes on for a while: who is connected there is on the wrong side."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import update

from emq_ops.ledger.interruptions import Contact, contact_of
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.schema import contacts
from emq_ops.passes.events import PassStarted
from emq_ops.policy.models import StalledPolicy
from emq_ops.protocol.connection import flush, sentinels
from emq_ops.protocol.connection.subscription import Subscription
from emq_ops.protocol.errors import ReconnectedError
from emq_ops.protocol.ids import mint
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Server, connect
from emq_ops.protocol.transitions.enqueue import enqueue
from tests.support.cluster import ask, until
from tests.support.passing import add, lapse, leading, sweep, swept, take
from tests.support.proxy import RespProxy, named
from tests.support.sentinel import NAME, Sentinel
from tests.support.valkey import Valkey

LEASE_MS = 1_500
COUNT = 12


@pytest.fixture
def watched() -> Iterator[Sentinel]:
    with Sentinel() as opened:
        yield opened


class Steady:
    """The clock that the Sentinels' answers age by: it stands still but for what a test adds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = time.monotonic()
        monkeypatch.setattr(sentinels, "steady", lambda: self.seconds)


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch) -> Steady:
    return Steady(monkeypatch)


def test_the_old_primary_is_left_within_a_second_though_it_lives_on(watched: Sentinel, steady: Steady) -> None:
    with connect(watched.url) as server:
        q = Queue(server, "mail")
        before = server.run_id("mail")
        with server.session("mail") as session, server.subscribe(q.keys.events) as events:
            old = watched.promote()
            steady.seconds += 1
            assert enqueue(q, mint(), b"x")
            assert server.run_id("mail") != before
            with pytest.raises(ReconnectedError, match="another node is the primary now"):
                session.read("PING")
            until("it listens there", lambda: _hears(server, events, q.keys.events))
            assert events.gaps == 1
        assert _pending_at(old) == 0
        [new] = [node for node in watched.nodes if node is not old]
        assert _pending_at(new) == 1


def test_portions_that_are_still_to_be_sent_go_to_the_new_one(
    watched: Sentinel, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = watched.primary, watched.replica
    now = time.monotonic()
    monkeypatch.setattr(flush, "MAX_CALLS", 1)
    monkeypatch.setattr(sentinels, "steady", lambda: now + _pending_at(old))
    with connect(watched.url) as server:
        q = Queue(server, "mail")
        server.read("PING")
        watched.promote()
        jobs = [mint() for _ in range(3)]
        calls = [([q.keys.row(job), q.keys.pending], (job, b"")) for job in jobs]
        assert server.run_many(load("enqueue"), calls) == [1, 1, 1]
    assert (_pending_at(old), _pending_at(new)) == (1, 2)


def test_nobody_goes_on_with_an_old_answer_while_a_sentinel_is_asked(
    watched: Sentinel, steady: Steady, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sentinels, "GLANCE", 60.0)
    with RespProxy(f"redis://127.0.0.1:{watched.port}", tcp=True) as proxy:
        url = proxy.url.replace("redis://", "redis+sentinel://") + f"/{NAME}"
        with connect(url) as server, ThreadPoolExecutor(4) as pool:
            q = Queue(server, "mail")
            old = watched.promote()
            fault = proxy.arm("hold_reply", match=named("SENTINEL"))
            steady.seconds += 0.9
            asking = pool.submit(enqueue, q, mint(), b"x")
            fault.wait()
            assert enqueue(q, mint(), b"x")  # nobody else waits yet
            assert _pending_at(old) == 1
            steady.seconds += 0.1
            others = [pool.submit(enqueue, q, mint(), b"x") for _ in range(3)]
            time.sleep(0.1)  # so that whoever would not wait has the time to show it
            fault.release()
            assert all(one.result(30) for one in [asking, *others])
    assert _pending_at(old) == 1


def _pending_at(node: Valkey) -> int:
    return int(ask(node, "ZCARD", keys_of("mail").pending))


def _hears(server: Server, events: Subscription, channel: str) -> bool:
    server.write("PUBLISH", channel, "x")
    return events.get(0.05) is not None


@pytest.mark.parametrize("clock", [pytest.param("same", marks=pytest.mark.soak), "ahead"])
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

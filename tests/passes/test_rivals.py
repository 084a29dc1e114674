"""Competing recoverers: found by what becomes of leases, told once, and never seen where there is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emq_ops.ledger import alerts
from emq_ops.ledger.alerts import Watched
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.observe.competitors import Fate, detect_competitor
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import recover, settle
from emq_ops.protocol.transitions.claims import claim
from tests.support.passing import add, lapse, swept, take

LEASE = Watched("JOB0STJaaaaaaa", 3, 1000, 1)


@pytest.mark.parametrize(
    ("fate", "kind"),
    [
        (Fate(None, 0, 0, False), None),  # completed late
        (Fate(b"active", 3, 1, False), None),  # still its holder's
        (Fate(b"scheduled", 3, 1, True), None),  # retried
        (Fate(b"pending", 3, 1, True), None),
        (Fate(b"dead", 3, 2, True), None),
        (Fate(b"pending", 3, 1, False), "recoverer"),
        (Fate(b"active", 4, 1, False), "recoverer"),
        (Fate(b"pending", 3, 2, False), "sweeper"),
        (Fate(b"active", 4, 2, False), "sweeper"),
    ],
)
def test_what_a_fate_tells(fate: Fate, kind: str | None) -> None:
    assert detect_competitor(LEASE, fate) == kind


@given(st.sampled_from([b"active", b"scheduled", b"dead", b"pending", None]), st.integers(0, 9), st.integers(0, 9))
def test_a_job_with_an_error_tells_nothing(state: bytes | None, attempts: int, stalls: int) -> None:
    assert detect_competitor(LEASE, Fate(state, attempts, stalls, True)) is None


def sampled(server: Server, ledger: Ledger, mail: Queue, count: int = 4) -> list[str]:
    """Leases that the last pass saw, and that have lapsed since."""
    mine = add(mail, count)
    take(mail, count, 60_000)
    swept(server, ledger, "mail")
    with ledger.read() as connection:
        assert sorted(w.job for w in alerts.watched(connection, "mail")) == mine
    past = server.now_ms("mail") - 5
    for job in mine:
        server.write("ZADD", mail.keys.active, past, job)
    with ledger.write() as connection:
        alerts.watch(connection, "mail", [Watched(job, 1, past, 0) for job in mine])
    return mine


def test_workers_that_reap_are_noticed_and_told_once(server: Server, ledger: Ledger, mail: Queue) -> None:
    mine = sampled(server, ledger, mail)
    assert recover.reap(mail) == 4
    assert claim(mail, 60_000) is not None
    report = swept(server, ledger, "mail")
    assert report.competitors == ["recoverer"]
    [found] = alerts.competing(ledger, "mail")
    assert (found.kind, found.times) == ("recoverer", 4)
    assert set(found.evidence["jobs"]) == set(mine)
    assert [alert.kind for alert in alerts.listing(ledger)] == ["competitor"]


def test_another_sweeper_is_noticed(server: Server, ledger: Ledger, mail: Queue) -> None:
    sampled(server, ledger, mail)
    recover.sweep(mail, max_stalled=5)
    assert swept(server, ledger, "mail").competitors == ["sweeper"]


def test_our_own_sweep_is_no_competitor(server: Server, ledger: Ledger, mail: Queue) -> None:
    sampled(server, ledger, mail)
    assert swept(server, ledger, "mail", max_stalled=5).recovered == 4
    assert swept(server, ledger, "mail", max_stalled=5).competitors == []
    assert alerts.competing(ledger) == []


def test_workers_that_settle_late_are_no_competitors(server: Server, ledger: Ledger, mail: Queue) -> None:
    done, failed, kept, back = sampled(server, ledger, mail)
    settle.complete(mail, done, 1)
    settle.retry(mail, failed, 1, settle.Failure(b"boom", delay_ms=0, max_attempts=9))
    server.write("ZADD", mail.keys.active, server.now_ms("mail") + 60_000, kept)
    settle.retry(mail, back, 1, settle.Failure(b"boom", delay_ms=0, max_attempts=9))
    recover.promote(mail)
    assert swept(server, ledger, "mail").competitors == []


def test_the_sample_leaves_out_who_failed_before(server: Server, ledger: Ledger, mail: Queue) -> None:
    """A second failure with the same text would look like a lease that somebody recovered."""
    [job] = add(mail)
    take(mail, 1, 60_000)
    server.write("HSET", mail.keys.row(job), "last_error", "boom")
    swept(server, ledger, "mail")
    with ledger.read() as connection:
        assert alerts.watched(connection, "mail") == []
    lapse_by_hand(mail, job)
    lapse(mail)
    assert swept(server, ledger, "mail", max_stalled=9).recovered_jobs == [job]


def lapse_by_hand(mail: Queue, job: str) -> None:
    mail.server.write("ZADD", mail.keys.active, mail.server.now_ms("mail") - 5, job)

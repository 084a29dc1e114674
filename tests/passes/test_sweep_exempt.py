"""What a sweep makes of interruptions and maintenance windows: who is exempt, who is counted, how often in a row."""

from __future__ import annotations

from typing import Any

from emq_ops.ledger import deaths, holds, interruptions
from emq_ops.ledger.holds import Window
from emq_ops.ledger.ledger import Ledger
from emq_ops.policy.models import StalledPolicy
from emq_ops.protocol.ids import mint
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server, connect
from tests.support.passing import add, dead_of, lapse, leading, stall, sweep, swept, take, until
from tests.support.valkey import Valkey


def restarted(durable: Valkey, ledger: Ledger, count: int = 1, **policy: Any) -> tuple[Server, Queue, list[str]]:
    server = connect(durable.url)
    mail = Queue(server, "mail")
    swept(server, ledger, "mail", **policy)
    mine = add(mail, count)
    take(mail, count, 20)
    durable.restart()
    lapse(mail)
    return server, mail, mine


def test_a_poison_job_dies_after_at_most_max_exempt_exemptions(durable: Valkey, ledger: Ledger) -> None:
    """However often the server restarts; the count of exemptions is not spent by being forced."""
    with connect(durable.url) as server:
        mail = Queue(server, "mail")
        swept(server, ledger, "mail")
        [job] = add(mail)
        told: list[tuple[int, int, int]] = []
        while not dead_of(mail):
            assert len(told) < 20
            assert take(mail, 1) == [job]
            durable.restart()
            lapse(mail)
            report = swept(server, ledger, "mail", max_stalled=2, max_exempt=3)
            told.append((report.exempted, report.forced, report.dead))
        assert told == [(1, 0, 0)] * 3 + [(0, 1, 0), (0, 0, 1)]
        assert server.read("EXISTS", mail.keys.exempt) == 0
        [death] = deaths.iterate(ledger)
        assert (death.evidence, death.stalls) == ("max-exempt", 2)
        assert death.interruption is not None


def test_a_counted_stall_gives_the_exemptions_back(durable: Valkey, ledger: Ledger) -> None:
    server, mail, [job] = restarted(durable, ledger)
    with server:
        assert swept(server, ledger, "mail", max_stalled=9).exempted_jobs == [job]
        assert server.read("HGET", mail.keys.exempt, job) == b"1"
        take(mail)
        lapse(mail)
        report = swept(server, ledger, "mail", max_stalled=9)
        assert (report.exempted, report.recovered) == (0, 1)
        assert server.read("EXISTS", mail.keys.exempt) == 0


def test_exemptions_of_jobs_that_are_gone_are_forgotten(server: Server, ledger: Ledger, mail: Queue) -> None:
    [job] = stall(mail)
    server.write("HSET", mail.keys.exempt, mint(), 2, job, 1)
    swept(server, ledger, "mail", max_stalled=9, restart="count")
    assert server.read("EXISTS", mail.keys.exempt) == 0
    add(mail)
    server.write("HSET", mail.keys.exempt, job, 1)
    swept(server, ledger, "mail")
    assert server.read("HKEYS", mail.keys.exempt) == [job.encode()]


def test_what_an_interruption_did_is_told_of_it(durable: Valkey, ledger: Ledger) -> None:
    server, mail, mine = restarted(durable, ledger, 3)
    with server:
        # One comes back by itself: its keeper goes on.
        server.write("ZADD", mail.keys.active, server.now_ms("mail") + 60_000, mine[0])
        report = swept(server, ledger, "mail")
        # The census was made at first contact: it has the moved deadline.
        assert report.exempted_jobs == mine[1:]
        [cut] = interruptions.listing(ledger)
        assert (cut.in_flight, cut.recovered, cut.exempted, cut.died) == (3, 2, 2, 0)


def test_count_at_threshold_1_kills_and_says_what_it_was(durable: Valkey, ledger: Ledger) -> None:
    server, mail, mine = restarted(durable, ledger, 3)
    with server:
        report = swept(server, ledger, "mail", restart="count")
        assert sorted(report.dead_jobs) == mine
        [cut] = interruptions.listing(ledger)
        assert (cut.in_flight, cut.recovered, cut.exempted, cut.died) == (3, 0, 0, 3)
        assert {d.interruption for d in deaths.iterate(ledger)} == {cut.id}
        assert dead_of(mail) == mine


def test_a_native_claim_of_this_life_counts_against_the_census(durable: Valkey, ledger: Ledger) -> None:
    server, mail, mine = restarted(durable, ledger, 2)
    with server:
        server.write("HSET", mail.keys.row(mine[0]), "lease_epoch", server.run_id("mail"))
        server.write("HSET", mail.keys.row(mine[1]), "lease_epoch", "0" * 40)
        report = swept(server, ledger, "mail")
        assert report.dead_jobs == mine[:1]
        assert report.exempted_jobs == mine[1:]


def test_after_the_last_lease_of_the_earlier_life_nothing_is_judged_any_more(durable: Valkey, ledger: Ledger) -> None:
    server, _, _ = restarted(durable, ledger)
    with server:
        assert swept(server, ledger, "mail").interruption is not None
        assert swept(server, ledger, "mail").interruption is None


# Maintenance windows


def test_a_maintenance_window(server: Server, ledger: Ledger, mail: Queue) -> None:
    [job] = stall(mail)
    now = server.now_ms("mail")
    holds.open_window(ledger, Window("mail", now - 60_000, now + 60_000))
    holds.open_window(ledger, Window("orders", now - 60_000, now + 60_000))
    orders = Queue(server, "orders")
    stall(orders)
    assert swept(server, ledger, "mail").exempted_jobs == [job]
    assert swept(server, ledger, "orders").exempted == 1
    holds.close_windows(ledger, server.now_ms("mail"))
    assert take(mail) == [job]
    lapse(mail)
    assert swept(server, ledger, "mail").dead_jobs == [job]


def test_a_lease_that_lapsed_in_a_window_is_exempt_after_it_too(server: Server, ledger: Ledger, mail: Queue) -> None:
    now = server.now_ms("mail")
    window = holds.open_window(ledger, Window("m*", now, now + 60_000))
    [job] = stall(mail)
    until(lambda: server.now_ms("mail") > now + 5)
    holds.close_windows(ledger, server.now_ms("mail"), window.queues)
    report = swept(server, ledger, "mail")
    assert report.exempted_jobs == [job]


def test_windows_of_the_config(server: Server, ledger: Ledger, mail: Queue) -> None:
    [job] = stall(mail)
    now = server.now_ms("mail")
    with leading(server, ledger, "mail") as fence:
        windows = [Window("ma?l", now - 1000, now + 1000)]
        report = sweep(server, "mail", StalledPolicy(), ledger, fence, windows=windows)
    assert report.exempted_jobs == [job]

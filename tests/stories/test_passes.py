"""Stories of the sweep on real processes, with fixed numbers, told back by the audits: (d) a poison job, (e) a failover
with unequal leases, (f) a deploy in a maintenance window. (a) to (c) are in ``test_restarts``."""

from __future__ import annotations

import itertools
import signal

from emq_ops.ledger import deaths, holds
from emq_ops.ledger.holds import Window
from emq_ops.ledger.ledger import Ledger
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server, connect
from emq_ops.protocol.transitions.reads import counts
from tests.stories.telling import interruptions, numbers, ops
from tests.support.passing import add, dead_of, lapse, swept, take, until
from tests.support.run_worker import start_worker
from tests.support.sentinel import Sentinel
from tests.support.valkey import Valkey
from tests.support.zygote import Child, Zygote

WAITS = "tests.support.handlers:waits"


def active(server: Server, queue: Queue) -> int:
    return int(server.read("ZCARD", queue.keys.active))


def work(zygote: Zygote, url: str, *, lease: int, concurrency: int = 8) -> Child:
    """A worker that recovers nothing, and whose jobs wait for the key ``go``."""
    return start_worker(
        zygote, url, "orders", WAITS, lease=lease, concurrency=concurrency, recovery="none", until_idle=False, beat=50
    )


def test_d_a_poison_job_takes_the_server_down_each_time_and_dies_in_the_end(
    durable: Valkey, ledger: Ledger, state: str, zygote: Zygote
) -> None:
    with connect(durable.url) as server:
        orders = Queue(server, "orders")
        swept(server, ledger, "orders")
        [poison] = add(orders)
        told: list[tuple[int, int, int]] = []
        while not dead_of(orders):
            assert len(told) < 9
            worker = work(zygote, durable.url, lease=300)
            until(lambda: active(server, orders) == 1, "the claim")
            durable.kill()
            worker.kill()
            durable.start()
            lapse(orders)
            report = swept(server, ledger, "orders", max_stalled=2, max_exempt=3)
            told.append((report.exempted, report.forced, report.dead))
        assert told == [(1, 0, 0)] * 3 + [(0, 1, 0), (0, 0, 1)]
        [death] = deaths.iterate(ledger)
        assert (death.job, death.stalls, death.evidence) == (poison, 2, "max-exempt")
        cuts = interruptions(state)
        assert [numbers(cut) for cut in cuts] == [
            *[("restart", 1, 1, 1, 0, 0)] * 3,
            ("restart", 1, 1, 0, 0, 0),  # recovered, and counted: it had been exempt too often in a row
            ("restart", 1, 0, 0, 1, 0),
        ]
        assert [cut["jobs"] for cut in cuts] == [
            *[{"exempted": [poison]}] * 3,
            {"recovered": [poison]},
            {"died": [poison]},
        ]
        assert all(cut["ended"] <= later["started"] for cut, later in itertools.pairwise(cuts))
        audit = ops("audit", "dead", "orders", "--url", durable.url, "--state", state)
        [suspect] = audit["suspects"]
        assert (suspect["job"], suspect["interruption"], suspect["sure"]) == (poison, cuts[-1]["id"], True)
        assert "it had been exempt too often in a row" in suspect["evidence"]


def test_e_a_failover_with_unequal_leases(ledger: Ledger, state: str) -> None:
    """Short and long leases on both sides of it: no lease of this life is exempted, none of the earlier is counted. The
    policy believes in leases of 500 ms, so the clock alone would be wrong about most of them."""
    policy = {"max_stalled": 1, "lease_ms": 500}
    short, long = 400, 4000
    with Sentinel() as watched, connect(watched.url) as server:
        orders = Queue(server, "orders")
        swept(server, ledger, "orders", **policy)
        before = add(orders, 10)
        take(orders, 5, short)
        take(orders, 5, long)
        until(lambda: _in_step(watched, orders, 10), "the replica")
        watched.fail_over()
        first = swept(server, ledger, "orders", **policy)  # first contact: the census
        add(orders, 10)
        after = take(orders, 5, short) + take(orders, 5, long)  # whoever is first: some of the earlier life again
        lapse(orders)
        second = swept(server, ledger, "orders", **policy)
        [cut] = interruptions(state)
        assert numbers(cut) == ("failover", 10, 10, 10, 0, 0)
        assert (cut["jobs"], cut["others"]) == ({"exempted": before}, 0)
        assert sorted(first.exempted_jobs + second.exempted_jobs) == before
        assert sorted(second.dead_jobs) == sorted(after)
        assert first.dead == 0
        audit = ops("audit", "dead", "orders", "--url", watched.url, "--state", state)
        assert (audit["dead"], audit["suspects"]) == (10, [])  # proven to be of this life


def _in_step(watched: Sentinel, orders: Queue, count: int) -> bool:
    with watched.replica.client() as replica:
        return bool(replica.zcard(orders.keys.active) == count)


def test_f_a_deploy_in_a_maintenance_window(durable: Valkey, ledger: Ledger, state: str, zygote: Zygote) -> None:
    """20 in flight when the old workers are killed; the new ones complete them. Without the window all would die."""
    with connect(durable.url) as server:
        orders = Queue(server, "orders")
        swept(server, ledger, "orders")
        add(orders, 20, payload=b"complete")
        old = work(zygote, durable.url, lease=400, concurrency=20)
        until(lambda: active(server, orders) == 20, "the claims")
        now = server.now_ms("orders")
        holds.open_window(ledger, Window("orders", now, now + 300_000, why="deploy"))
        old.kill()
        lapse(orders)
        report = swept(server, ledger, "orders", max_stalled=1)
        assert (report.exempted, report.dead) == (20, 0)
        holds.close_windows(ledger, server.now_ms("orders"))
        server.write("SET", "go", 1)
        new = work(zygote, durable.url, lease=400, concurrency=20)
        until(lambda: counts(orders).completed == 20, "the new workers")
        new.signal(signal.SIGTERM)
        assert new.wait() == 0
        assert swept(server, ledger, "orders", max_stalled=1).dead == 0
        assert (counts(orders).dead, counts(orders).active, counts(orders).pending) == (0, 0, 0)
        assert list(deaths.iterate(ledger)) == []
        told = ops("audit", "restarts", "--state", state)
        assert (told["interruptions"], told["bursts"]) == ([], [])  # a window is none, nor is who lapsed in it a burst
        told = ops("audit", "what-if", "--max-stalled", "1", "--state", state)
        assert (told["jobs"], told["would_die"]) == (20, 0)

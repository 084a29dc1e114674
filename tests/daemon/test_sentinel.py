"""The daemon under real Sentinels: a planned failover whose old primary goes on for a while kills nobody."""

from __future__ import annotations

from pathlib import Path

from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import connect
from emq_ops.protocol.transitions import reads
from emq_ops.protocol.transitions.claims import claim_batch
from emq_ops.protocol.transitions.leases import keep
from tests.support.cluster import ask, replication
from tests.support.daemons import site, wait_for
from tests.support.orders import lapsed
from tests.support.passing import add
from tests.support.sentinel import Sentinel
from tests.support.valkey import Valkey

CONFIG = """
server: {{url: "{url}"}}
state: {{url: "sqlite:///state.db"}}
daemon: {{lease: 2s}}
queues:
  mail:
    stalled: {{every: 300ms, max_stalled: 1, restart: exempt, lease: 2s}}
"""
COUNT = 12
LEASE_MS = 2_000


def test_a_planned_failover_kills_no_healthy_job(tmp_path: Path) -> None:
    with Sentinel() as watched, site(tmp_path / "s", CONFIG.format(url=watched.url)) as here:
        old, new = watched.primary, watched.replica
        with connect(watched.url) as server, connect(f"redis://127.0.0.1:{old.port}") as stays:
            lapsed(server, 1, "mail")
            here.run("apply", "--yes")
            daemon = here.up()
            q = Queue(server, "mail")
            wait_for(lambda: reads.counts(q).dead == 1)
            jobs = add(q, COUNT)
            held = [(claim.job, claim.token) for claim in claim_batch(q, LEASE_MS, COUNT)]
            assert [job for job, _ in held] == jobs
            ask(old, "WAIT", 1, 5000)
            watched.promote()
            # The worker stays on the old side for longer than a lease; the daemon does not.
            took_over = 0

            def seen() -> bool:
                nonlocal took_over
                assert keep(Queue(stays, "mail"), held, LEASE_MS) == []
                took_over += ask(new, "HGET", keys_of("mail").lease, "run") == _run_id(new)
                return len(ask(new, "ZRANGE", keys_of("mail").pending, 0, -1)) == COUNT

            wait_for(seen, 15)
            assert took_over
            assert replication(old)["role"] == "master"
            assert ask(new, "ZCARD", keys_of("mail").dead) == 1
            [found] = here.json("audit", "restarts")["interruptions"]
            assert (found["kind"], found["died"]) == ("failover", 0)
            daemon.stop()


def _run_id(node: Valkey) -> bytes:
    found: bytes = ask(node, "INFO", "server").split(b"run_id:")[1].split(b"\r\n")[0]
    return found

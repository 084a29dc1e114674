"""PostgreSQL under a daemon at work: killed, ended sessions, read-only for a while."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from emq_ops.ledger.ledger import open_ledger
from emq_ops.ledger.schema import deaths
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import reads
from tests.support.daemons import site, wait_for
from tests.support.health import health
from tests.support.passing import add, stall, take
from tests.support.ports import free_ports
from tests.support.postgres import Postgres
from tests.support.postgres_changes import alter, database, turn_read_only
from tests.support.valkey import Valkey

CONFIG = """
server: {{url: "unix://{socket}"}}
state: {{url: "{state}"}}
archive: {{local: "{local}", remote: {{url: "file:bucket"}}, ship_after: 1s}}
daemon: {{lease: 3s, backoff: 200ms}}
queues:
  orders:
    stalled: {{every: 100ms, max_stalled: 1}}
    dead: {{every: 200ms, keep: 5, archive: true}}
    streams: {{completions: {{every: 200ms, keep: 3}}}}
"""


def settled(q: Queue) -> None:
    """Until every lapsed lease is swept, and what the policy lets go is trimmed."""

    def done() -> bool:
        found = reads.counts(q)
        return found.active + found.pending == 0 and found.dead <= 5

    wait_for(done)


@pytest.mark.long
@pytest.mark.parametrize("whom", ["postmaster", pytest.param("sessions", marks=pytest.mark.soak)])
def test_killed_under_a_daemon_at_work(tmp_path: Path, valkey: Valkey, server: Server, whom: str) -> None:
    """Nothing is counted twice or never, in the ledger and in the archive, and no run is left as running."""
    q = Queue(server, "orders")
    made: list[str] = []
    added = 0
    over = threading.Event()

    def traffic() -> None:
        nonlocal added
        while not over.wait(0.02):
            made.extend(add(q, 2))
            take(q, 2)
            server.write("XADD", q.keys.stream("completions"), "*", "job", made[-1])
            added += 1

    with Postgres() as own:
        state, local = own.fresh(), own.fresh()
        with site(tmp_path / "s", CONFIG.format(socket=valkey.socket, state=state, local=local)) as here:
            here.run("apply", "--yes")
            daemon = here.up()
            worker = threading.Thread(target=traffic)
            worker.start()
            try:
                wait_for(lambda: len(daemon.events("pass_ended")) > 6)
                if whom == "postmaster":
                    own.kill()
                    wait_for(lambda: daemon.events("state_fault"))
                    own.start()
                    wait_for(lambda: daemon.events("state_back"))
                else:
                    alter(own, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname LIKE 't%'")
                ended = len(daemon.events("pass_ended"))
                wait_for(lambda: len(daemon.events("pass_ended")) > ended + 3)
            finally:
                over.set()
                worker.join()
            settled(q)
            made.extend(add(q, 12))  # one more pass of each kind, which marks what was left as running
            take(q, 12)
            settled(q)
            wait_for(lambda: server.read("XLEN", q.keys.stream("completions")) <= 3)
            daemon.stop()
            unread = [line for line in daemon.log.read_text().splitlines() if not line.startswith("{")]
            assert unread == []  # no library speaks beside the log
            counts: Counter[str] = Counter()
            listed = here.json("runs", "ls", "--limit", "100000")
            for run in listed:
                counts.update({name: n for name, n in (run["counts"] or {}).items() if isinstance(n, int)})
            assert counts["dead"] == len(made)
            assert counts["removed"] == len(made) - reads.counts(q).dead
            assert counts["trimmed"] == added - server.read("XLEN", q.keys.stream("completions"))
            assert [run for run in listed if run["status"] == "running"] == []
            with open_ledger(state) as ledger, ledger.read() as connection:
                known = connection.execute(deaths.select()).mappings().all()
            assert sorted(row["job"] for row in known) == sorted(made)
            read = here.run("archive", "read", "orders", "completions", "--output", "jsonl").out.splitlines()
            assert len({json.loads(line)["stream_id"] for line in read}) == len(read) == added


def test_a_daemon_leaves_sessions_that_turned_read_only(tmp_path: Path, valkey: Valkey, server: Server) -> None:
    q = Queue(server, "orders")
    with Postgres() as own:
        state, local = own.fresh(), own.fresh()
        with site(tmp_path / "s", CONFIG.format(socket=valkey.socket, state=state, local=local)) as here:
            here.run("apply", "--yes")
            here.up()
            stall(q, 2)
            wait_for(lambda: reads.counts(q).dead == 2)
            turn_read_only(own, state)
            turn_read_only(own, local)
            stall(q, 2)
            wait_for(lambda: reads.counts(q).dead == 4)


@pytest.mark.long
def test_c25_a_database_that_takes_no_writes_for_a_while(tmp_path: Path, valkey: Valkey, server: Server) -> None:
    q, port = Queue(server, "orders"), free_ports(1)[0]
    with Postgres() as own:
        state, local = own.fresh(), own.fresh()
        names = [database(state), database(local)]
        text_ = CONFIG.format(socket=valkey.socket, state=state, local=local).replace("every: 100ms", "every: 1s")
        with site(tmp_path / "s", f'{text_}\nhttp: {{listen: "127.0.0.1:{port}"}}\n') as here:
            here.run("apply", "--yes")
            daemon = here.up()
            stall(q, 2)
            wait_for(lambda: reads.counts(q).dead == 2)
            ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname LIKE 't%'"
            alter(own, *(f"ALTER DATABASE {name} SET default_transaction_read_only = on" for name in names), ended)
            stall(q, 2)
            wait_for(lambda: "takes no writes" in str(health(port)["state_fault"]))
            over = time.monotonic() + 6
            while time.monotonic() < over:
                assert not health(port)["ok"]
                time.sleep(0.2)
            assert reads.counts(q).dead == 2
            alter(own, *(f"ALTER DATABASE {name} RESET default_transaction_read_only" for name in names))
            back = time.monotonic()
            wait_for(lambda: reads.counts(q).dead == 4)
            assert time.monotonic() - back < 10  # its interval is a second; the rest is for a busy machine
            wait_for(lambda: health(port)["ok"])
            assert len(daemon.events("state_back")) == 1
            assert len(daemon.events("state_fault")) <= 5  # ended, refused: each text once

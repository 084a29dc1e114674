"""No room for the state database under a daemon: what answers reads is not well."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import reads
from tests.support.daemons import site, wait_for
from tests.support.health import health
from tests.support.passing import stall
from tests.support.ports import free_ports
from tests.support.valkey import Valkey

CONFIG = """
server: {{url: "unix://{socket}"}}
state: {{url: "sqlite:///state.db"}}
http: {{listen: "127.0.0.1:{port}"}}
daemon: {{lease: 3s, backoff: 200ms}}
queues:
  orders: {{stalled: {{every: 100ms, max_stalled: 1}}}}
"""


@pytest.mark.long
def test_a_daemon_that_has_no_room_for_its_state_says_so_until_it_has(
    tmp_path: Path, valkey: Valkey, server: Server
) -> None:
    q, port = Queue(server, "orders"), free_ports(1)[0]
    with site(tmp_path / "s", CONFIG.format(socket=valkey.socket, port=port)) as here:
        here.run("apply", "--yes")
        daemon = here.up()
        # A reader keeps the write-ahead log from beginning anew, so the limit on its size is felt at the next write.
        with closing(sqlite3.connect(here.folder / "state.db", isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM runs").fetchone()
            wal = here.folder / "state.db-wal"
            while wal.stat().st_size < 4 * daemon.log.stat().st_size + 200_000:
                stall(q, 50)
                wait_for(lambda: reads.counts(q).active == 0)
            assert health(port)["ok"]
            process = psutil.Process(daemon.process.pid)
            process.rlimit(psutil.RLIMIT_FSIZE, (wal.stat().st_size, psutil.RLIM_INFINITY))
            wait_for(lambda: not health(port)["ok"])
            back, faults = len(daemon.events("state_back")), len(daemon.events("state_fault"))
            stall(q, 5)
            for _ in range(20):
                found = health(port)
                assert (found["ok"], "no room" in found["state_fault"]) == (False, True)
            assert len(daemon.events("state_back")) == back
            assert len(daemon.events("state_fault")) <= faults + 5
            process.rlimit(psutil.RLIMIT_FSIZE, (psutil.RLIM_INFINITY, psutil.RLIM_INFINITY))
        wait_for(lambda: health(port)["ok"])
        wait_for(lambda: reads.counts(q).active == 0)

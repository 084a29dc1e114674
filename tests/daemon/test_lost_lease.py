"""A lease that was lost under a daemon: it is asked for anew, and nothing spins meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import reads
from tests.support.daemons import Daemon, Site, site, wait_for
from tests.support.orders import config, lapsed
from tests.support.valkey import Valkey

LEASE = keys_of("orders").lease


LEASE_S = 120


@pytest.fixture
def here(tmp_path: Path, valkey: Valkey, server: Server) -> Iterator[Site]:
    # A lost lease is a sign of a server that went back: with restart: exempt a death would depend on the moment.
    text = config(valkey, lease=f"{LEASE_S}s", keep=100).replace("max_stalled: 1", "max_stalled: 1, restart: count")
    assert "restart: count" in text
    with site(tmp_path / "s", text) as made:
        made.run("apply", "--yes")
        yield made


def up(here: Site, server: Server) -> Daemon:
    daemon = here.up()
    lapsed(server, 1)
    wait_for(lambda: reads.counts(Queue(server, "orders")).dead == 1)
    return daemon


def test_a_lease_that_is_gone_is_taken_anew_at_once(here: Site, server: Server) -> None:
    daemon = up(here, server)
    server.write("DEL", LEASE)
    lapsed(server, 1)
    # And not at the next renewal, a third of the lease later.
    wait_for(lambda: reads.counts(Queue(server, "orders")).dead == 2, LEASE_S / 3 - 1)
    assert len(daemon.events("lease_lost")) == 1
    daemon.stop()


def test_a_lease_that_another_holds_is_no_hot_loop(here: Site, server: Server) -> None:
    daemon = up(here, server)
    lines, runs = len(daemon.events()), len(here.json("runs", "ls"))
    now = server.now_ms("orders")
    another = {"token": "1000000", "nonce": "another", "machine": "elsewhere", "until": str(now + 60_000)}
    server.write("HSET", LEASE, *[word for pair in another.items() for word in pair])
    lapsed(server, 5)
    time.sleep(3)
    assert len(daemon.events()) - lines < 12
    assert len(here.json("runs", "ls")) - runs <= 3  # one of each task at the most
    assert reads.counts(Queue(server, "orders")).dead == 1
    server.write("HSET", LEASE, "until", "0")
    wait_for(lambda: reads.counts(Queue(server, "orders")).dead == 6)
    daemon.stop()

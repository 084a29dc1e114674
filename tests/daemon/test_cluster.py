"""The daemon on a real Cluster: a shard that hangs or moves is nobody else's matter."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from emq_ops.protocol.keyspace import VERSION_KEY, keys_of
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server, connect
from emq_ops.protocol.slots import slot
from emq_ops.protocol.transitions import reads
from tests.support.cluster import SHARES, Cluster, ask
from tests.support.daemons import Daemon, Site, site, wait_for
from tests.support.health import health
from tests.support.moving import Move
from tests.support.orders import lapsed
from tests.support.ports import free_ports
from tests.support.valkey import Valkey

CONFIG = """
server: {{url: "{url}"}}
state: {{url: "sqlite:///state.db"}}
archive: {{local: "sqlite:///archive.db", remote: {{url: "file:bucket"}}, ship_after: 1s}}
daemon: {{lease: {lease}}}
http: {{listen: "127.0.0.1:{port}"}}
defaults:
  stalled: {{every: 1s, max_stalled: 1, restart: count}}
  dead: {{every: 1s, keep: 1000, archive: true}}
queues:
{queues}
"""
LEASE_S = 3
SETTLED = 2.5
"""Seconds within which a lapsed job of a queue that is swept every second is dead."""


def queue_of(share: tuple[int, int]) -> str:
    return next(f"q{n}" for n in range(999) if share[0] <= slot(keys_of(f"q{n}").base) <= share[1])


QUEUES = [queue_of(share) for share in SHARES]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(cluster_require_full_coverage="no", appendonly="yes") as opened:
        yield opened


@pytest.fixture
def server(cluster: Cluster) -> Iterator[Server]:
    with connect(cluster.url) as opened:
        yield opened


@pytest.fixture
def port() -> int:
    return free_ports(1)[0]


@pytest.fixture
def here(tmp_path: Path, cluster: Cluster, server: Server, port: int) -> Iterator[Site]:
    for queue in QUEUES:
        lapsed(server, 1, queue)
    queues = "\n".join(f"  {name}: {{}}" for name in QUEUES)
    config = CONFIG.format(url=cluster.url, lease=f"{LEASE_S}s", queues=queues, port=port)
    with site(tmp_path / "s", config) as made:
        made.run("apply", "--yes")
        yield made


@pytest.fixture
def daemon(here: Site, server: Server) -> Daemon:
    running = here.up()
    for queue in QUEUES:
        wait_for(lambda queue=queue: reads.counts(Queue(server, queue)).dead == 1)
    return running


def slowest(server: Server, queues: list[str], seconds: float) -> float:
    """The longest that a lapsed job of these queues waited for its sweep, in seconds, over so long a time."""
    until, worst = time.monotonic() + seconds, 0.0
    while time.monotonic() < until:
        since = time.monotonic()
        jobs = {queue: lapsed(server, 1, queue)[0] for queue in queues}
        for queue, job in jobs.items():
            dead = keys_of(queue).dead
            wait_for(lambda dead=dead, job=job: server.read("ZSCORE", dead, job) is not None, 30)
            worst = max(worst, time.monotonic() - since)
    return worst


def named_as_down(port: int, node: Valkey) -> bool:
    """Whether a daemon says that it is not well, for the one queue of this node, and names it and no other."""
    told = health(port)
    assert told["ok"] is (told["away"] == 0)
    return told["away"] == 1 and [f"127.0.0.1:{node.port}" in reason for reason in told["faults"]] == [True]


@pytest.mark.long
def test_a_daemon_that_starts_while_a_shard_is_down_is_not_well(
    cluster: Cluster, here: Site, port: int, server: Server
) -> None:
    down = next(i for i, (first, last) in enumerate(SHARES) if not first <= slot(VERSION_KEY) <= last)
    others = [name for i, name in enumerate(QUEUES) if i != down]
    cluster.nodes[down].kill()
    daemon = here.up()
    for queue in others:
        wait_for(lambda queue=queue: reads.counts(Queue(server, queue)).dead == 1)
    wait_for(lambda: named_as_down(port, cluster.nodes[down]))
    cluster.nodes[down].start()
    lapsed(server, 1, QUEUES[down])
    wait_for(lambda: health(port)["ok"] and reads.counts(Queue(server, QUEUES[down])).dead > 0)
    daemon.stop()


@pytest.mark.long
@pytest.mark.parametrize("which", ["fence", pytest.param("other", marks=pytest.mark.soak)])
def test_a_frozen_primary_holds_up_no_other_shard(
    cluster: Cluster, server: Server, daemon: Daemon, port: int, which: str
) -> None:
    fence = next(i for i, (first, last) in enumerate(SHARES) if first <= slot(VERSION_KEY) <= last)
    frozen = fence if which == "fence" else (fence + 1) % 3
    others = [name for i, name in enumerate(QUEUES) if i != frozen]
    node = cluster.nodes[frozen]
    assert node.process is not None
    usual = slowest(server, others, 3)  # of this machine, as busy as it is now
    os.kill(node.process.pid, signal.SIGSTOP)
    try:
        worst = slowest(server, others, 10)
        assert named_as_down(port, node)
    finally:
        os.kill(node.process.pid, signal.SIGCONT)
    assert worst < max(SETTLED + 2, 3 * usual)
    assert not [event for event in daemon.events("lease_lost") if event["queue"] in others]
    lost = daemon.events("server_lost")
    assert lost
    assert all(f"127.0.0.1:{node.port}" in event["error"] for event in lost)  # which shard, and no other
    late = lapsed(server, 1, QUEUES[frozen])
    wait_for(lambda: server.read("ZSCORE", keys_of(QUEUES[frozen]).dead, late[0]) is not None, SETTLED + LEASE_S + 5)
    wait_for(lambda: health(port)["ok"])
    daemon.stop()


@pytest.mark.long
@pytest.mark.parametrize("end", ["finish", pytest.param("turn_back", marks=pytest.mark.soak)])
def test_a_slot_that_stands_half_moved_is_taken_up_within_an_interval(
    cluster: Cluster, server: Server, daemon: Daemon, end: str
) -> None:
    queue = QUEUES[1]
    usual = slowest(server, [QUEUES[0], QUEUES[2]], 2)
    move = Move(cluster, queue).begin()
    move.carry(keys_of(queue).dead, keys_of(queue).lease)
    wait_for(lambda: any("moving this slot" in str(event) for event in daemon.events()), 10)
    time.sleep(LEASE_S + 1)  # a lease that nobody renews is over by then
    assert slowest(server, [QUEUES[0], QUEUES[2]], 2) < max(SETTLED, 3 * usual)
    getattr(move, end)()
    since = time.monotonic()
    [late] = lapsed(server, 1, queue)
    wait_for(lambda: server.read("ZSCORE", keys_of(queue).dead, late) is not None, 30)
    assert time.monotonic() - since < max(SETTLED + LEASE_S / 3, 3 * usual)
    assert reads.counts(Queue(server, queue)).dead == 2
    daemon.stop()


def test_an_atomic_move_is_followed(cluster: Cluster, server: Server, daemon: Daemon) -> None:
    move = Move(cluster, QUEUES[1])
    move.atomic()
    [late] = lapsed(server, 1, QUEUES[1])
    wait_for(lambda: ask(move.target, "ZSCORE", keys_of(QUEUES[1]).dead, late) is not None, SETTLED + 2)
    daemon.stop()

"""Failovers, moved slots and lost nodes, on real Sentinels and a real Cluster."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from emq_ops.protocol.connection.subscription import Subscription
from emq_ops.protocol.errors import ReconnectedError, ServerError, SlotMovingError, UnreachableError
from emq_ops.protocol.ids import mint
from emq_ops.protocol.keyspace import VERSION_KEY, keys_of
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import ConnectionOptions, Server, connect
from emq_ops.protocol.slots import slot
from emq_ops.protocol.transitions.claims import claim
from emq_ops.protocol.transitions.enqueue import enqueue
from emq_ops.protocol.transitions.reads import counts
from tests.support.cluster import Cluster, ask, replication, until
from tests.support.ports import free_ports
from tests.support.sentinel import Sentinel
from tests.support.valkey import Valkey


def _calls(q: Queue, count: int) -> list[tuple[list[str], tuple[str, bytes]]]:
    return [([q.keys.row(job), q.keys.pending], (job, b"")) for job in (mint() for _ in range(count))]


def _hears(server: Server, events: Subscription, channel: str) -> bool:
    server.write("PUBLISH", channel, "x")
    try:
        return events.get(0.05) is not None
    except UnreachableError:
        return False


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(replicas=1) as opened:
        yield opened


def _queue_of(cluster: Cluster, owner: Valkey) -> str:
    """A queue that `owner` serves now."""
    return next(name for n in range(200) if cluster.owner(slot(keys_of(name := f"q{n}").base)) is owner)


@pytest.fixture
def clustered(cluster: Cluster) -> Iterator[Server]:
    until(
        "the Cluster is whole",
        lambda: all(ask(n, "CLUSTER", "INFO")[:16] == b"cluster_state:ok" for n in cluster.nodes),
    )
    with connect(cluster.url) as server:
        yield server


def test_a_sentinel_failover_of_both_kinds() -> None:
    hasty = ConnectionOptions(patience=0.3)
    with Sentinel() as watched, connect(watched.url) as server, connect(watched.primary.url, hasty) as direct:
        q = Queue(server, "mail")
        for _ in range(3):
            assert enqueue(q, mint(), b"")
        for node in watched.nodes:
            ask(node, "SCRIPT", "FLUSH")
        with server.session("mail") as session:
            watched.fail_over()
            # Pooled connections lead to a replica now, and the new primary never saw the scripts.
            with pytest.raises(ReconnectedError):
                enqueue(Queue(session, "mail"), mint(), b"")
        assert server.run_many(load("enqueue"), _calls(q, 5)) == [1] * 5
        assert enqueue(q, mint(), b"")
        # Who names the old primary itself is told what it is.
        with pytest.raises(ServerError, match=r"READONLY.*replica.*redis\+sentinel"):
            enqueue(Queue(direct, "mail"), mint(), b"")
        until("the replica is in step", lambda: replication(watched.replica)["master_link_status"] == "up")
        ask(watched.primary, "WAIT", 1, 5000)
        with server.subscribe(q.keys.events) as events:
            watched.lose_primary()
            assert claim(q, 60_000) is not None  # waits until the Sentinel has made a new one
            assert counts(q).pending == 8
            until("it listens to the new primary", lambda: _hears(server, events, q.keys.events))
            assert events.gaps > 0


def test_sentinels_that_are_gone_or_know_nothing() -> None:
    dead, port = free_ports(2)
    hasty = ConnectionOptions(patience=0.3)
    with pytest.raises(UnreachableError, match="no Sentinel names the primary"):
        connect(f"redis+sentinel://127.0.0.1:{dead}/emq", hasty)
    with Valkey(port=port) as plain:
        with pytest.raises(UnreachableError, match="unknown command"):
            connect(f"redis+sentinel://127.0.0.1:{port}/emq", hasty)
        with pytest.raises(UnreachableError, match="cluster support disabled"):
            connect(f"redis+cluster://127.0.0.1:{port}", hasty)
        assert plain.process is not None


def test_one_living_sentinel_is_enough() -> None:
    with Sentinel() as watched:
        [dead] = free_ports(1)
        with connect(f"redis+sentinel://127.0.0.1:{dead},127.0.0.1:{watched.port}/emq") as server:
            assert enqueue(Queue(server, "mail"), mint(), b"")
        with pytest.raises(UnreachableError, match="knows no primary 'other'"):
            connect(f"redis+sentinel://127.0.0.1:{watched.port}/other", ConnectionOptions(patience=0.3))


def test_a_cluster_failover(cluster: Cluster, clustered: Server) -> None:
    name = _queue_of(cluster, cluster.owner(100))
    q = Queue(clustered, name)
    assert clustered.run_many(load("enqueue"), _calls(q, 3)) == [1] * 3
    with clustered.session(name) as session:
        cluster.fail_over(100)
        with pytest.raises(ReconnectedError):
            enqueue(Queue(session, name), mint(), b"")
    # MOVED by the old primary, NOSCRIPT by the new one, in one flush.
    assert clustered.run_many(load("enqueue"), _calls(q, 5)) == [1] * 5
    assert claim(q, 60_000) is not None
    assert counts(q).pending == 7


def test_a_slot_that_moves_while_it_is_used(cluster: Cluster, clustered: Server) -> None:
    source, target = cluster.owner(6000), cluster.owner(12000)
    name = _queue_of(cluster, source)
    number = slot(keys_of(name).base)
    ids = {node: ask(node, "CLUSTER", "MYID") for node in (source, target)}
    q = Queue(clustered, name)
    jobs = [mint() for _ in range(4)]
    for job in jobs[:2]:
        assert enqueue(q, job, b"")
    ask(target, "CLUSTER", "SETSLOT", number, "IMPORTING", ids[source])
    ask(source, "CLUSTER", "SETSLOT", number, "MIGRATING", ids[target])
    ask(source, "MIGRATE", "127.0.0.1", target.port, q.keys.pending, 0, 5000)
    # What is there already is asked for there; scripts wait for as long as that lasts.
    assert clustered.read("ZCARD", q.keys.pending) == 2
    waits = pytest.raises(SlotMovingError, match="moving this slot")
    with connect(cluster.url, ConnectionOptions(patience=0.3)) as hasty, waits:
        enqueue(Queue(hasty, name), jobs[0], b"")
    done: list[bool] = []
    thread = threading.Thread(target=lambda: done.append(enqueue(q, jobs[2], b"")))
    thread.start()
    for job in jobs[:2]:
        ask(source, "MIGRATE", "127.0.0.1", target.port, q.keys.row(job), 0, 5000)
    for node in (target, source):
        ask(node, "CLUSTER", "SETSLOT", number, "NODE", ids[target])
    thread.join(20)
    assert done == [True]
    assert enqueue(q, jobs[3], b"")
    assert counts(q).pending == 4
    assert clustered.run_id(name) == ask_run_id(target)


def test_one_node_of_a_cluster_named_as_a_plain_server(cluster: Cluster) -> None:
    fence = slot(VERSION_KEY)
    other = cluster.owner(12000) if fence < 10923 else cluster.owner(100)
    with pytest.raises(ServerError, match=r"MOVED.*redis\+cluster://") as refused:
        connect(f"redis://127.0.0.1:{other.port}")
    assert refused.value.code == "MOVED"


def test_a_lost_primary_without_a_replica(cluster: Cluster) -> None:
    """The last test of this module: it kills a node."""
    lost = cluster.owner(12000)
    name = _queue_of(cluster, lost)
    with connect(cluster.url, ConnectionOptions(patience=0.5)) as server:
        assert enqueue(Queue(server, name), mint(), b"")
        lost.kill()
        with pytest.raises(UnreachableError):
            enqueue(Queue(server, name), mint(), b"")
        rest = next(node for node in cluster.nodes if node.process is not None)
        until("the Cluster notices", lambda: ask(rest, "CLUSTER", "INFO").startswith(b"cluster_state:fail"))
        other = next(n for n in (f"q{i}" for i in range(99)) if slot(keys_of(n).base) < 10923)
        with pytest.raises(UnreachableError, match=r"CLUSTERDOWN|no node serves") as refused:
            enqueue(Queue(server, other), mint(), b"")
        assert refused.value.fix


def ask_run_id(node: Valkey) -> str:
    with node.client() as client:
        return str(client.info("server")["run_id"])

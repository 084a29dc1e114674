"""A Cluster's members are known by node id: another Cluster at an address of theirs gets nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from emq_ops.protocol.errors import UnreachableError
from emq_ops.protocol.ids import mint
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import ConnectionOptions, connect
from emq_ops.protocol.slots import slot
from emq_ops.protocol.transitions.enqueue import enqueue
from emq_ops.protocol.transitions.reads import counts
from tests.support.cluster import Cluster, ask, replication, until
from tests.support.valkey import Valkey

HASTY = ConnectionOptions(patience=1.0)


@contextmanager
def stranger(at: Valkey) -> Iterator[Valkey]:
    """A Cluster of one node that serves every slot, at the address of a node that is gone."""
    config = {**at.config, "cluster_port": int(at.config["cluster_port"])}
    with Valkey(port=at.port, **config) as node:
        ask(node, "CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        until("it is up", lambda: ask(node, "CLUSTER", "INFO").startswith(b"cluster_state:ok"))
        yield node


def queues(count: int = 12) -> list[str]:
    """Queues of every share of the slots."""
    found = [f"q{n}" for n in range(count)]
    assert len({slot(keys_of(name).base) // 5462 for name in found}) == 3
    return found


def test_a_drained_nodes_address_that_another_cluster_took() -> None:
    with Cluster(replicas=1) as cluster, connect(cluster.url, HASTY) as server:
        for name in queues():
            enqueue(Queue(server, name), mint(), b"")
        drained = cluster.owner(100)
        cluster.fail_over(100)
        name = ask(drained, "CLUSTER", "MYID")
        drained.kill()
        rest = [node for node in cluster.nodes if node is not drained]
        for node in rest:
            ask(node, "CLUSTER", "FORGET", name)
        with stranger(drained) as foreign:
            for queue in queues():
                enqueue(Queue(server, queue), mint(), b"")
            assert sum(counts(Queue(server, queue)).pending for queue in queues()) == 24
            assert len(server.queues()) == 12
            # Who comes anew can't tell which of the two is meant, whichever stands first in the URL.
            parts = cluster.url.removeprefix("redis+cluster://").split(",")
            for order in (parts, parts[::-1]):
                with pytest.raises(UnreachableError, match="are of two Clusters"):
                    connect("redis+cluster://" + ",".join(order), HASTY)
            assert ask(foreign, "DBSIZE") == 0


def test_every_address_taken_by_another_cluster_is_refused_and_named() -> None:
    with Cluster() as cluster, connect(cluster.url, HASTY) as server:
        [enqueue(Queue(server, name), mint(), b"") for name in queues()]
        for node in cluster.nodes:
            node.kill()
        first = cluster.nodes[0]
        with stranger(first) as foreign:
            told = ask(foreign, "CLUSTER", "MYID").decode()
            for name in queues()[:2]:
                with pytest.raises(UnreachableError) as refused:
                    enqueue(Queue(server, name), mint(), b"")
            assert told in str(refused.value)
            assert "another Cluster" in str(refused.value)
            assert ask(foreign, "DBSIZE") == 0


def test_a_member_that_comes_back_with_another_id_is_a_member_once_the_others_say_so() -> None:
    with Cluster(replicas=1) as cluster, connect(cluster.url, HASTY) as server:
        [enqueue(Queue(server, name), mint(), b"") for name in queues()]
        lost = cluster.owner(100)
        heir = next(n for n in cluster.nodes if replication(n).get("master_port") == str(lost.port))
        old = ask(lost, "CLUSTER", "MYID")
        lost.kill()
        until("its replica took over", lambda: replication(heir)["role"] == "master")
        for node in cluster.nodes:
            if node is not lost:
                ask(node, "CLUSTER", "FORGET", old)
        (lost.dir / "nodes.conf").unlink()
        lost.start()
        ask(heir, "CLUSTER", "MEET", "127.0.0.1", lost.port, lost.config["cluster_port"])
        heirs = ask(heir, "CLUSTER", "MYID")
        until("it knows its primary", lambda: heirs in ask(lost, "CLUSTER", "NODES"))
        ask(lost, "CLUSTER", "REPLICATE", heirs)
        until("it is in step", lambda: replication(lost).get("master_link_status") == "up")
        cluster.fail_over(100)
        assert cluster.owner(100) is lost
        for name in queues():
            assert enqueue(Queue(server, name), mint(), b"")

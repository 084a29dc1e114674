"""One shard among several that is down or hangs: the others serve, and its own queues are served by whoever follows."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from emq_ops.protocol.errors import IncompatibleError, UnreachableError
from emq_ops.protocol.ids import mint
from emq_ops.protocol.keyspace import VERSION_KEY, keys_of
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import ConnectionOptions, connect
from emq_ops.protocol.slots import slot
from emq_ops.protocol.transitions.enqueue import enqueue
from emq_ops.protocol.transitions.reads import counts
from tests.support.cluster import SHARES, Cluster, ask, until
from tests.support.sentinel import Sentinel
from tests.support.valkey import Valkey

QUEUES = [next(n for n in map("q{}".format, range(999)) if a <= slot(keys_of(n).base) <= b) for a, b in SHARES]
FENCE = next(i for i, (first, last) in enumerate(SHARES) if first <= slot(VERSION_KEY) <= last)
OTHERS = [name for i, name in enumerate(QUEUES) if i != FENCE]


@contextmanager
def frozen(node: Valkey) -> Iterator[None]:
    assert node.process is not None
    os.kill(node.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(node.process.pid, signal.SIGCONT)


def test_the_versions_shard_that_is_down_stops_no_other() -> None:
    hasty = ConnectionOptions(patience=1.0)
    with (
        Cluster(appendonly="yes", appendfsync="always", cluster_require_full_coverage="no") as cluster,
        connect(cluster.url, hasty) as server,
    ):
        ask(cluster.nodes[FENCE], "SET", VERSION_KEY, "echomq:3.1.0")
        assert all(enqueue(Queue(server, name), mint(), b"") for name in QUEUES)
        cluster.nodes[FENCE].kill()
        with pytest.raises(UnreachableError):
            enqueue(Queue(server, QUEUES[FENCE]), mint(), b"")
        for _ in range(3):
            for i, node in enumerate(cluster.nodes):
                if i != FENCE:
                    ask(node, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            since = time.monotonic()
            assert all(enqueue(Queue(server, name), mint(), b"") for name in OTHERS)
            assert time.monotonic() - since < 3
        with pytest.raises(UnreachableError):  # who never read it can't know
            connect(cluster.url, hasty)
        # It is looked at again once that can be done.
        cluster.nodes[FENCE].start()
        until("it serves again", lambda: ask(cluster.nodes[FENCE], "CLUSTER", "INFO").startswith(b"cluster_state:ok"))
        ask(cluster.nodes[FENCE], "SET", VERSION_KEY, "echomq:9.0.0")

        def refused() -> bool:
            try:
                counts(Queue(server, OTHERS[0]))
            except IncompatibleError:
                return True
            return False

        until("the other version is refused", refused, seconds=15)


SLOW = ConnectionOptions(patience=10.0, connect_timeout=10.0)
"""One connect may take all the patience there is; a failover takes some two seconds, more on a busy machine."""


@pytest.mark.long
@pytest.mark.parametrize("known", [True, False], ids=["connected before", "connects now"])
def test_a_replica_that_takes_over_within_patience_is_found(known: bool) -> None:
    with Cluster(replicas=1) as cluster:
        if known:
            with connect(cluster.url, SLOW) as server:
                q = Queue(server, QUEUES[0])
                assert enqueue(q, mint(), b"")
                server.hurried(1).read("PING")  # an idle connection of each
                node = cluster.owner(slot(q.keys.base))
                ask(node, "WAIT", 1, 5000)
                with frozen(node):
                    assert counts(q).pending == 1
                    assert enqueue(q, mint(), b"")
        else:
            node = cluster.owner(slot(keys_of(QUEUES[0]).base))
            with frozen(node), connect(cluster.url, SLOW) as server:
                assert enqueue(Queue(server, QUEUES[0]), mint(), b"")


def test_a_frozen_primary_under_sentinels_is_replaced_within_patience() -> None:
    with Sentinel() as watched:
        node = watched.primary
        with frozen(node), connect(watched.url) as server:
            assert enqueue(Queue(server, "mail"), mint(), b"")

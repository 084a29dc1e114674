"""Where the server is: one address, whatever the Sentinels say, or the nodes of a Cluster.

Each answers the node that owns a slot, takes hints that it moved, and looks again before the next answer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from emq_ops.protocol.connection.link import ConnectionLost, Link
from emq_ops.protocol.connection.node import Node
from emq_ops.protocol.connection.replies import ErrorReply, reply_error
from emq_ops.protocol.connection.url import Address, Target
from emq_ops.protocol.errors import UnreachableError

SLOTS = 16_384


class Topology(Protocol):
    """`heals`: whether a lost primary is replaced by another in a while, so that waiting for it makes sense. `single`:
    whether one node owns every slot."""

    heals: bool
    single: bool

    def node(self, slot: int | None) -> Node:
        """The primary of `slot` (None: any primary). Raises UnreachableError."""

    def primaries(self) -> list[Node]:
        """Every primary. Raises UnreachableError."""

    def doubt(self) -> None:
        """Something went wrong: look again before the next answer."""

    def moved(self, slot: int, address: Address) -> bool:
        """A node said that `slot` lives at `address`; whether that is of use here."""

    def at(self, address: Address) -> Node:
        """The node at `address`."""

    def close(self) -> None:
        """Closes every idle link."""


class _Nodes:
    """The nodes known by address, made once each."""

    def __init__(self, target: Target, admit: Callable[[Link], None] | None = None) -> None:
        self._target = target
        self._admit = admit
        self._known: dict[Address, Node] = {}
        self._lock = threading.Lock()

    def at(self, address: Address) -> Node:
        with self._lock:
            node = self._known.get(address)
            if node is None:
                where = self._target.where
                if len(self._target.addresses) != 1 or self._target.addresses[0] != address:
                    where = f"{where} at {show(address)}"
                node = Node(address, self._target.options, where, tls=self._target.tls, admit=self._admit)
                self._known[address] = node
            return node

    def all(self) -> list[Node]:
        with self._lock:
            return list(self._known.values())

    def drop(self) -> None:
        for node in self.all():
            node.drop()


def show(address: Address) -> str:
    return address if isinstance(address, str) else f"{address[0]}:{address[1]}"


class Standalone:
    """One fixed address."""

    heals = False
    single = True

    def __init__(self, target: Target) -> None:
        self._nodes = _Nodes(target)
        self._address = target.addresses[0]

    def node(self, slot: int | None) -> Node:
        return self._nodes.at(self._address)

    def primaries(self) -> list[Node]:
        return [self.node(None)]

    def doubt(self) -> None:
        # A name may lead elsewhere by now; a fresh link resolves it again.
        self._nodes.drop()

    def moved(self, slot: int, address: Address) -> bool:
        return False

    def at(self, address: Address) -> Node:
        return self._nodes.at(address)

    def close(self) -> None:
        self._nodes.drop()


class Sentinels:
    """The primary that the Sentinels name; checked to be one when it is connected to."""

    heals = True
    single = True

    def __init__(self, target: Target) -> None:
        self._target = target
        self._nodes = _Nodes(target, _primary_only)
        self._asked = list(target.addresses)
        self._primary: Node | None = None
        self._lock = threading.Lock()

    def node(self, slot: int | None) -> Node:
        with self._lock:
            if self._primary is None:
                self._primary = self._nodes.at(self._find())
            return self._primary

    def primaries(self) -> list[Node]:
        return [self.node(None)]

    def doubt(self) -> None:
        with self._lock:
            self._primary = None
        self._nodes.drop()

    def moved(self, slot: int, address: Address) -> bool:
        return False

    def at(self, address: Address) -> Node:
        return self._nodes.at(address)

    def close(self) -> None:
        self._nodes.drop()

    def _find(self) -> Address:
        options = self._target.options
        own = _sentinel_options(options)
        faults: list[str] = []
        for address in list(self._asked):
            link = Link(address, own, f"Sentinel {show(address)}", tls=self._target.tls)
            try:
                link.open()
                [reply] = link.ask(
                    [("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._target.service)], options.connect_seconds
                )
            except (UnreachableError, ConnectionLost) as fault:
                faults.append(str(fault))
                continue
            finally:
                link.close()
            if isinstance(reply, ErrorReply):
                faults.append(f"Sentinel {show(address)}: {reply.text}")
            elif reply is None:
                faults.append(f"Sentinel {show(address)} knows no primary '{self._target.service}'")
            else:
                self._asked.remove(address)
                self._asked.insert(0, address)
                return reply[0].decode(), int(reply[1])
        raise UnreachableError(
            f"no Sentinel names the primary: {'; '.join(faults)}",
            where=self._target.where,
            fix="check the Sentinels' addresses and the name they know it by",
        )


def _sentinel_options(options: Any) -> Any:
    import dataclasses

    return dataclasses.replace(options, username=options.sentinel_username, password=options.sentinel_password, db=None)


def _primary_only(link: Link) -> None:
    """Refuses a link to a replica: an old primary that came back, before the Sentinels told us."""
    try:
        [reply] = link.ask([("INFO", "replication")], 10)
    except ConnectionLost as fault:
        raise UnreachableError(f"can't connect: {fault}", where=link.where) from fault
    if isinstance(reply, bytes) and b"role:master" not in reply:
        raise UnreachableError("this node is a replica now", where=link.where, fix="wait for the Sentinels")


class Cluster:
    """The primaries of a Cluster, by slot, as one of its nodes tells."""

    heals = True
    single = False

    def __init__(self, target: Target) -> None:
        self._target = target
        self._nodes = _Nodes(target)
        self._slots: list[Node | None] = []
        self._stale = True
        self._lock = threading.Lock()

    def node(self, slot: int | None) -> Node:
        with self._lock:
            if self._stale:
                self._learn()
            node = next((n for n in self._slots if n), None) if slot is None else self._slots[slot]
            if node is None:
                self._stale = True
                raise UnreachableError(
                    f"no node serves slot {slot}", where=self._target.where, fix="bring back the primary of that slot"
                )
            return node

    def primaries(self) -> list[Node]:
        with self._lock:
            if self._stale:
                self._learn()
            found = {id(node): node for node in self._slots if node is not None}
        return list(found.values())

    def doubt(self) -> None:
        with self._lock:
            self._stale = True
        self._nodes.drop()

    def moved(self, slot: int, address: Address) -> bool:
        with self._lock:
            if not self._stale:
                self._slots[slot] = self._nodes.at(address)
        return True

    def at(self, address: Address) -> Node:
        return self._nodes.at(address)

    def close(self) -> None:
        self._nodes.drop()

    def _learn(self) -> None:
        known = [node.address for node in self._nodes.all()]
        faults: list[str] = []
        for address in dict.fromkeys([*known, *self._target.addresses]):
            node = self._nodes.at(address)
            try:
                link = node.take()
                try:
                    [reply] = link.ask([("CLUSTER", "SLOTS")], self._target.options.socket_seconds)
                finally:
                    node.give(link)
            except (UnreachableError, ConnectionLost) as fault:
                faults.append(str(fault))
                continue
            if isinstance(reply, ErrorReply):
                faults.append(str(reply_error(reply.text, node.where)))
                continue
            if reply:
                self._slots = self._table(reply, address)
                self._stale = False
                return
            faults.append(f"{show(address)} knows of no slots")
        raise UnreachableError(
            f"no node of the Cluster answers: {'; '.join(faults)}", where=self._target.where, fix="check the addresses"
        )

    def _table(self, ranges: Sequence[Any], asked: Address) -> list[Node | None]:
        table: list[Node | None] = [None] * SLOTS
        for first, last, (host, port, *_), *_ in ranges:
            # An empty host means: the one that you asked.
            named = host.decode() if host else asked[0] if isinstance(asked, tuple) else asked
            node = self._nodes.at((named, int(port)))
            table[first : last + 1] = [node] * (last + 1 - first)
        return table

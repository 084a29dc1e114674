"""Where the server is: one address, or whatever the Sentinels say (`cluster`: the nodes of a Cluster).

Each answers the node that owns a slot, takes hints that it moved, and looks again before the next answer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Any

from emq_ops.protocol.connection.link import ConnectionLost, Link
from emq_ops.protocol.connection.node import Node
from emq_ops.protocol.connection.replies import ErrorReply
from emq_ops.protocol.connection.url import Address, Target
from emq_ops.protocol.errors import EmqError, UnreachableError


class Topology:
    """`heals`: whether a lost primary is replaced by another in a while, so that waiting for it makes sense. `single`:
    whether one node owns every slot; then nothing moves."""

    heals = False
    single = True

    def node(self, slot: int | None) -> Node:
        """The primary of `slot` (None: any primary). Raises UnreachableError."""
        raise NotImplementedError

    def at(self, address: Address) -> Node:
        """The node at `address`."""
        raise NotImplementedError

    def primaries(self) -> list[Node]:
        """Every primary. Raises UnreachableError."""
        return [self.node(None)]

    def doubt(self, node: Node | None = None) -> None:
        """Something went wrong (with `node`): look again before the next answer."""
        raise NotImplementedError

    def close(self) -> None:
        """Closes every idle link."""
        raise NotImplementedError

    def moved(self, slot: int, address: Address) -> bool:
        """A node said that `slot` lives at `address`; whether that is of use here."""
        return False

    def moving(self, slot: int) -> None:
        """A node said that `slot` is moving: what was known of its keys holds no more."""

    def torn(self, slots: Collection[int]) -> dict[int, EmqError]:
        """Those of `slots` of which a part lies on another node, each with what to say."""
        return {}


class Nodes:
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


class Standalone(Topology):
    """One fixed address."""

    def __init__(self, target: Target) -> None:
        self._nodes = Nodes(target)
        self._address = target.addresses[0]

    def node(self, slot: int | None) -> Node:
        return self._nodes.at(self._address)

    def doubt(self, node: Node | None = None) -> None:
        # A name may lead elsewhere by now; a fresh link resolves it again.
        self._nodes.drop()

    def at(self, address: Address) -> Node:
        return self._nodes.at(address)

    def close(self) -> None:
        self._nodes.drop()


class Sentinels(Topology):
    """The primary that the Sentinels name; checked to be one when it is connected to."""

    heals = True

    def __init__(self, target: Target) -> None:
        self._target = target
        self._nodes = Nodes(target, _primary_only)
        self._asked = list(target.addresses)
        self._primary: Node | None = None
        self._lock = threading.Lock()

    def node(self, slot: int | None) -> Node:
        with self._lock:
            if self._primary is None:
                self._primary = self._nodes.at(self._find())
            return self._primary

    def doubt(self, node: Node | None = None) -> None:
        with self._lock:
            self._primary = None
        self._nodes.drop()

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

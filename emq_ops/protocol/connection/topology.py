"""Where the server is: one address, what the Sentinels say (`sentinels`), or the nodes of a Cluster (`cluster`).

Each returns the node that owns a slot, takes hints that it moved, and looks again before the next answer.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Collection

from emq_ops.protocol.connection.link import Link
from emq_ops.protocol.connection.node import Node
from emq_ops.protocol.connection.options import ConnectionOptions
from emq_ops.protocol.connection.url import Address, Target
from emq_ops.protocol.errors import EmqError


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

    def layout(self) -> object:
        """Who serves what by now, and what is moving: equal as long as no key can have gone from one node to another.
        None where there is but one."""
        return None

    def serves(self, node: Node) -> bool:
        """Whether `node` is, as far as is known, still what it was when it was given."""
        return True

    def moved(self, slot: int, address: Address) -> bool:
        """A node said that `slot` lives at `address`; whether that is of use here."""
        return False

    def moving(self, slot: int) -> None:
        """A node said that `slot` is moving: what was known of its keys holds no more."""

    def torn(self, slots: Collection[int], scripts: Collection[int], proving: Collection[int]) -> dict[int, EmqError]:
        """Those of `slots` of which a part lies on another node, each with what to say. `scripts`: those of them in
        which a script is to run, which looks at keys that it does not name; `proving`: in which one is to prove it."""
        return {}

    def proof(self, slot: int) -> bytes:
        """How the node of `slot` stood (`scripts.moves_of`) when all of the slot was known to lie there; empty where it
        may not be asked."""
        return b""


class Nodes:
    """The nodes known by address, made once each. `heals`: where another node may serve in a while, no connect may take
    all the patience that there is."""

    def __init__(self, target: Target, admit: Callable[[Link], None] | None = None, *, heals: bool = False) -> None:
        self._target = target
        self._options = hasty(target.options) if heals else target.options
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
                node = Node(address, self._options, where, tls=self._target.tls, admit=self._admit)
                self._known[address] = node
            return node

    def all(self) -> list[Node]:
        with self._lock:
            return list(self._known.values())

    def drop(self) -> None:
        for node in self.all():
            node.drop()


def hasty(options: ConnectionOptions) -> ConnectionOptions:
    """As `options`, with three connects at the least within patience."""
    most = max(1.0, options.patience_seconds / 3)
    return dataclasses.replace(options, connect_timeout=min(options.connect_seconds, most))


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

"""The primaries of a Cluster, by slot, as its members tell.

Members are known by their node ids. An address alone proves nothing: the node that had it may be gone, and another
Cluster's may answer there by now. So each fresh link is asked for its id, and a table of slots that names no known
member is another Cluster's.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from emq_ops.protocol import deadline
from emq_ops.protocol.connection.link import ConnectionLost, Link
from emq_ops.protocol.connection.node import Node
from emq_ops.protocol.connection.replies import ErrorReply, reply_error
from emq_ops.protocol.connection.topology import Nodes, Topology, show
from emq_ops.protocol.connection.url import Address, Target
from emq_ops.protocol.connection.wholeness import GLANCE, WholeSlots, ask, own_line
from emq_ops.protocol.errors import EmqError, UnreachableError

SLOTS = 16_384
SUSPECT = 10.0
"""For so many seconds a node that did not answer is asked last."""


class Cluster(Topology):
    """Thread-safe. Nothing is asked while a lock is held that others need: where a node hangs, whoever has a table
    goes on with it."""

    heals = True
    single = False

    def __init__(self, target: Target) -> None:
        self._target = target
        self._nodes = Nodes(target, self._admit, heals=True)
        self._slots: list[Node | None] = []
        self._members: frozenset[str] = frozenset()
        self._ids: dict[Address, str] = {}
        self._suspects: dict[Node, float] = {}
        self._whole = WholeSlots(self, target.where)
        self._stale = True
        self._lock = threading.Lock()
        self._learning = threading.Lock()

    def node(self, slot: int | None) -> Node:
        table = self.table()
        node = next((n for n in table if n), None) if slot is None else table[slot]
        if node is None:
            self._stale = True
            raise UnreachableError(
                f"no node serves slot {slot}", where=self._target.where, fix="bring back the primary of that slot"
            )
        return node

    def primaries(self) -> list[Node]:
        return list(dict.fromkeys(node for node in self.table() if node is not None))

    def doubt(self, node: Node | None = None) -> None:
        with self._lock:
            self._stale = True
            if node is not None:
                self._suspects[node] = time.monotonic() + SUSPECT
        if node is None:
            self._nodes.drop()
        else:
            node.drop()

    def moved(self, slot: int, address: Address) -> bool:
        self._whole.forget(slot)
        with self._lock:
            if address not in self._ids:
                self._stale = True  # a node that no table named yet
            elif not self._stale:
                self._slots[slot] = self._nodes.at(address)
        return True

    def moving(self, slot: int) -> None:
        self._whole.forget(slot)

    def torn(self, slots: Collection[int], scripts: Collection[int], proving: Collection[int]) -> dict[int, EmqError]:
        return self._whole.torn(slots, scripts, proving)

    def proof(self, slot: int) -> bytes:
        return self._whole.proof(slot)

    def layout(self) -> object:
        with self._lock:
            self._stale = True
        table, told = self.table(), list[object]()
        for node in dict.fromkeys(node for node in table if node is not None):
            told.append((node, tuple(slot for slot in range(SLOTS) if table[slot] is node)))
            told.append(self._moves(node))
        return told

    @staticmethod
    def _moves(node: Node) -> object:
        """What moves to or from a node; that is equal to nothing."""
        return object() if "[" in own_line(node) else ""

    def at(self, address: Address) -> Node:
        return self._nodes.at(address)

    def close(self) -> None:
        self._nodes.drop()

    def doubt_table(self) -> None:
        """The table is learned anew before it is used again."""
        self._stale = True

    def suspected(self, node: Node) -> bool:
        """Whether a node did not answer lately."""
        return self._suspects.get(node, 0.0) > time.monotonic()

    def suspect(self, node: Node) -> None:
        """A node did not answer: it is asked last for a while."""
        with self._lock:
            self._suspects[node] = time.monotonic() + SUSPECT

    def table(self) -> list[Node | None]:
        """The table; learned anew where it is in doubt, by one thread at a time."""
        with self._lock:
            table, stale = self._slots, self._stale
        if not stale or not self._learning.acquire(blocking=not table):
            return table
        try:
            if self._stale:
                self._learn()
            return self._slots
        finally:
            self._learning.release()

    def _learn(self) -> None:
        faults: dict[Address, str] = {}
        for node, seconds in self._candidates():
            try:
                [reply] = ask(node, [("CLUSTER", "SLOTS")], seconds)
            except EmqError as fault:
                deadline.check(self._target.where)
                self.suspect(node)
                faults[node.address] = str(fault)
                continue
            if isinstance(reply, ErrorReply):
                faults[node.address] = str(reply_error(reply.text, node.where))
            elif not reply:
                faults[node.address] = f"{show(node.address)} knows of no slots"
            elif strangers := self._strangers(reply):
                named = ", ".join(sorted(strangers)[:3])
                what = f"{show(node.address)} is of another Cluster: none of its nodes ({named}) is one of those known"
                faults[node.address] = what
            else:
                if not self._members:
                    self._check_others(reply, node)
                self._take(reply, node.address)
                return
        raise UnreachableError(
            f"no node of the Cluster answers: {'; '.join(faults.values())}",
            where=self._target.where,
            fix="check the addresses",
        )

    def _candidates(self) -> Iterator[tuple[Node, float]]:
        """Whom to ask, and for how long: the members that serve slots, then every other address that is known, suspects
        last; in a second round those that were slow."""
        configured = [self._nodes.at(address) for address in self._target.addresses]
        known = list(dict.fromkeys([*(n for n in self._slots if n is not None), *self._nodes.all(), *configured]))
        ordered = sorted(known, key=self.suspected)
        yield from ((node, GLANCE) for node in ordered)
        yield from ((node, self._target.options.socket_seconds) for node in ordered)

    def _strangers(self, ranges: Sequence[Any]) -> set[str]:
        """The ids in a table that shares none with the members; empty where it may be ours."""
        ids = set(_ids(ranges).values())
        return ids if ids and self._members and not ids & self._members else set()

    def _check_others(self, ranges: Sequence[Any], node: Node) -> None:
        """At first contact nobody is known: the addresses of the URL must be of one Cluster. Those that the table names
        are; another that answers is asked."""
        ids = _ids(ranges, node.address)
        for address in self._target.addresses:
            if address in ids or address == node.address:
                continue
            try:
                [reply] = ask(self._nodes.at(address), [("CLUSTER", "SLOTS")], GLANCE)
            except EmqError:
                continue
            if isinstance(reply, list) and (other := set(_ids(reply).values())) and not other & set(ids.values()):
                raise UnreachableError(
                    f"{show(node.address)} and {show(address)} are of two Clusters",
                    where=self._target.where,
                    fix="take the address that is another Cluster's out of the URL",
                )

    def _take(self, ranges: Sequence[Any], asked: Address) -> None:
        table: list[Node | None] = [None] * SLOTS
        for first, last, (host, port, *_), *_ in ranges:
            node = self._nodes.at(_address(host, port, asked))
            table[first : last + 1] = [node] * (last + 1 - first)
        with self._lock:
            self._ids = _ids(ranges, asked)
            self._members = frozenset(self._ids.values())
            before = self._slots
            self._slots, self._stale = table, False
        self._whole.forget(*(slot for slot, was in enumerate(before) if table[slot] is not was))

    def _admit(self, link: Link) -> None:
        """Refuses a node that has the address of a member and is none."""
        expected = self._ids.get(link.address)
        if expected is None:
            return
        try:
            [reply] = link.ask([("CLUSTER", "MYID")], self._target.options.connect_seconds)
        except ConnectionLost as fault:
            raise UnreachableError(f"can't connect: {fault}", where=link.where) from fault
        if isinstance(reply, bytes) and reply.decode("ascii", "replace") not in self._members:
            raise UnreachableError(
                f"another Cluster's node answers here: its id is {reply.decode('ascii', 'replace')}, not {expected}",
                where=link.where,
                fix="check the address; the Cluster's other members are asked where the slot lives",
            )


def _address(host: bytes | None, port: int, asked: Address) -> Address:
    # An empty host means: the one that you asked.
    named = host.decode() if host else asked[0] if isinstance(asked, tuple) else asked
    return named, int(port)


def _ids(ranges: Sequence[Any], asked: Address = ("", 0)) -> dict[Address, str]:
    """The node id at each address that a table names, replicas included."""
    found: dict[Address, str] = {}
    for _, _, *nodes in ranges:
        for host, port, *more in nodes:
            if more:
                found[_address(host, port, asked)] = more[0].decode("ascii", "replace")
    return found

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
from emq_ops.protocol.connection.link import ConnectionLost, Link, Words
from emq_ops.protocol.connection.node import Node
from emq_ops.protocol.connection.replies import MOVING_FIX, ErrorReply, reply_error
from emq_ops.protocol.connection.topology import Nodes, Topology, show
from emq_ops.protocol.connection.url import Address, Target
from emq_ops.protocol.errors import EmqError, SlotMovingError, UnreachableError

SLOTS = 16_384
GLANCE = 1.0
"""Seconds that a node may take to say how the Cluster stands, before another is asked."""
WHOLE = 1.0
"""A slot of which no other node has keys is asked about again after so many seconds, or by what takes things away."""
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
        self._whole: dict[int, float] = {}
        self._stale = True
        self._lock = threading.Lock()
        self._learning = threading.Lock()

    def node(self, slot: int | None) -> Node:
        table = self._table()
        node = next((n for n in table if n), None) if slot is None else table[slot]
        if node is None:
            self._stale = True
            raise UnreachableError(
                f"no node serves slot {slot}", where=self._target.where, fix="bring back the primary of that slot"
            )
        return node

    def primaries(self) -> list[Node]:
        return list(dict.fromkeys(node for node in self._table() if node is not None))

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
        with self._lock:
            self._whole.pop(slot, None)
            if address not in self._ids:
                self._stale = True  # a node that no table named yet
            elif not self._stale:
                self._slots[slot] = self._nodes.at(address)
        return True

    def moving(self, slot: int) -> None:
        with self._lock:
            self._whole.pop(slot, None)

    def torn(self, slots: Collection[int], scripts: Collection[int], fresh: Collection[int]) -> dict[int, EmqError]:
        """A node keeps the keys of a slot that it does not serve only while a move is under way, or where one was left
        half done. What was found holds for WHOLE seconds, or until a node says that the slot moves or moved. As long as
        the nodes know of the move themselves, what names its one key is right."""
        now = time.monotonic()
        with self._lock:
            asked = sorted(slot for slot in set(slots) if slot in fresh or self._whole.get(slot, 0.0) <= now)
        if not asked:
            return {}
        found: dict[int, EmqError] = {}
        try:
            table = self._table()
        except UnreachableError:
            return {}  # told by who asks for the nodes themselves
        for node in dict.fromkeys(node for node in table if node is not None and not self._suspected(node)):
            others = [slot for slot in asked if table[slot] is not node]
            for slot, count in zip(others, self._counted(node, others), strict=False):
                if count:
                    what = f"the Cluster is moving this slot: {count} of its keys lie on {show(node.address)}"
                    found[slot] = SlotMovingError(what, where=self._target.where, fix=MOVING_FIX)
        with self._lock:
            self._whole.update(dict.fromkeys(set(asked) - set(found), now + WHOLE))
            self._stale = self._stale or bool(found)  # the node with the keys may serve them by now
        return {slot: fault for slot, fault in found.items() if slot in scripts or not self._leaves(table[slot], slot)}

    def _leaves(self, node: Node | None, slot: int) -> bool:
        """Whether a node knows that it gives up a slot, and so says where a key is that it has not."""
        return node is not None and f"[{slot}->-" in self._own_line(node)

    def layout(self) -> object:
        with self._lock:
            self._stale = True
        table, told = self._table(), list[object]()
        for node in dict.fromkeys(node for node in table if node is not None):
            told.append((node, tuple(slot for slot in range(SLOTS) if table[slot] is node)))
            told.append(self._moves(node))
        return told

    def _moves(self, node: Node) -> object:
        """What moves to or from a node; that is equal to nothing."""
        return object() if "[" in self._own_line(node) else ""

    def _own_line(self, node: Node) -> str:
        """What a node says of itself in CLUSTER NODES, with the slots that move; one bracket where it says nothing."""
        try:
            [reply] = self._ask(node, [("CLUSTER", "NODES")], GLANCE)
        except EmqError:
            return "["
        lines = reply.decode("utf-8", "replace").splitlines() if isinstance(reply, bytes) else []
        return next((line for line in lines if "myself" in line), "[")

    def at(self, address: Address) -> Node:
        return self._nodes.at(address)

    def close(self) -> None:
        self._nodes.drop()

    def _suspected(self, node: Node) -> bool:
        return self._suspects.get(node, 0.0) > time.monotonic()

    def _counted(self, node: Node, slots: Sequence[int]) -> list[int]:
        """How many keys of each slot lie on a node; empty where it does not say."""
        try:
            replies = self._ask(node, [("CLUSTER", "COUNTKEYSINSLOT", slot) for slot in slots], GLANCE)
        except EmqError:
            with self._lock:
                self._suspects[node] = time.monotonic() + SUSPECT
            return []
        return [reply if isinstance(reply, int) else 0 for reply in replies]

    def _table(self) -> list[Node | None]:
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
                [reply] = self._ask(node, [("CLUSTER", "SLOTS")], seconds)
            except EmqError as fault:
                deadline.check(self._target.where)
                with self._lock:
                    self._suspects[node] = time.monotonic() + SUSPECT
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
        ordered = sorted(known, key=self._suspected)
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
                [reply] = self._ask(self._nodes.at(address), [("CLUSTER", "SLOTS")], GLANCE)
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
            self._whole = {slot: at for slot, at in self._whole.items() if table[slot] is before[slot]}
            self._slots, self._stale = table, False

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

    @staticmethod
    def _ask(node: Node, commands: Sequence[Words], seconds: float) -> list[Any]:
        """The replies of a node within `seconds`. Raises UnreachableError."""
        with deadline.deadline(seconds):
            link = node.take()
            try:
                return link.ask(commands, seconds)
            except ConnectionLost as fault:
                raise UnreachableError(f"no answer: {fault}", where=node.where) from fault
            finally:
                node.give(link)


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

"""Whether all keys of a slot lie on the node that serves it.

While a slot moves, its nodes refuse our scripts themselves (``scripts.in_cluster``). A move that was given up half way
leaves no flag, and its keys where they were: the other nodes are asked whether they have any. What they say holds for a
while. Scripts that prove it name how their own node stood before the others were asked, and are refused where a slot of
that node began or ceased to move since.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Sequence
from typing import Any, Protocol

from emq_ops.protocol import scripts
from emq_ops.protocol.connection.link import ConnectionLost, Words
from emq_ops.protocol.connection.node import Node
from emq_ops.protocol.connection.replies import MOVING_FIX
from emq_ops.protocol.connection.topology import show
from emq_ops.protocol.deadline import deadline
from emq_ops.protocol.errors import EmqError, SlotMovingError, UnreachableError

GLANCE = 1.0
"""Seconds that a node may take to say how the Cluster stands, before another is asked."""
WHOLE = 1.0
"""A slot of which no other node has keys is asked about again after so many seconds."""
NO_PROOF = b"?"
"""A node said nothing: no script that proves runs on it before it did."""
steady = time.monotonic


class _Members(Protocol):
    """A Cluster's nodes, as far as they are needed here."""

    def table(self) -> Sequence[Node | None]: ...

    def suspected(self, node: Node) -> bool: ...

    def suspect(self, node: Node) -> None: ...

    def doubt_table(self) -> None: ...


class WholeSlots:
    """Thread-safe. What is remembered of a slot is forgotten when a node says that it moves or moved."""

    def __init__(self, members: _Members, where: str) -> None:
        self._members, self._where = members, where
        self._until: dict[int, float] = {}
        self._proofs: dict[int, bytes] = {}
        self._lock = threading.Lock()

    def forget(self, *slots: int) -> None:
        """What was known of these slots holds no more."""
        with self._lock:
            for slot in slots:
                self._until.pop(slot, None)
                self._proofs.pop(slot, None)

    def proof(self, slot: int) -> bytes:
        """How the node of `slot` stood before the slot was last found whole."""
        with self._lock:
            return self._proofs.get(slot, NO_PROOF)

    def torn(
        self, slots: Collection[int], with_scripts: Collection[int], proving: Collection[int]
    ) -> dict[int, EmqError]:
        """See Topology.torn. As long as the nodes know of a move themselves, what names its one key is right."""
        now = steady()
        with self._lock:
            asked = [slot for slot in set(slots) if self._until.get(slot, 0.0) <= now]
            unproven = [slot for slot in proving if slot not in self._proofs]
        if not asked and not unproven:
            return {}
        try:
            table = self._members.table()
        except UnreachableError:
            return {}  # told by who asks for the nodes themselves
        # First how the owners stand: a move that begins after this shows in the proof.
        stood = {node: self._moves_of(node) for node in {table[slot] for slot in unproven} if node is not None}
        found = self._elsewhere(table, sorted({*asked, *unproven}))
        with self._lock:
            for slot in {*asked, *unproven} - set(found):
                self._until[slot] = now + WHOLE
            for slot in set(unproven) - set(found):
                node = table[slot]
                if node is not None and stood[node] != NO_PROOF:
                    self._proofs[slot] = stood[node]
        return {
            slot: fault for slot, fault in found.items() if slot in with_scripts or not _gives_up(table[slot], slot)
        }

    def _elsewhere(self, table: Sequence[Node | None], slots: Sequence[int]) -> dict[int, EmqError]:
        """Those of `slots` of which a node has keys that does not serve them."""
        found: dict[int, EmqError] = {}
        for node in dict.fromkeys(node for node in table if node is not None and not self._members.suspected(node)):
            others = [slot for slot in slots if table[slot] is not node]
            for slot, count in zip(others, self._counted(node, others), strict=False):
                if count:
                    what = f"the Cluster is moving this slot: {count} of its keys lie on {show(node.address)}"
                    found[slot] = SlotMovingError(what, where=self._where, fix=MOVING_FIX)
        if found:
            self._members.doubt_table()  # the node with the keys may serve them by now
            self.forget(*found)
        return found

    def _counted(self, node: Node, slots: Sequence[int]) -> list[int]:
        """How many keys of each slot lie on a node; empty where it does not say."""
        if not slots:
            return []
        try:
            replies = ask(node, [("CLUSTER", "COUNTKEYSINSLOT", slot) for slot in slots], GLANCE)
        except EmqError:
            self._members.suspect(node)
            return []
        return [reply if isinstance(reply, int) else 0 for reply in replies]

    @staticmethod
    def _moves_of(node: Node) -> bytes:
        """How a node stands with its moves; empty where the user may not ask."""
        try:
            [reply] = ask(node, [scripts.MOVES_OF], GLANCE)
        except EmqError:
            return NO_PROOF
        return scripts.moves_of(reply) if isinstance(reply, bytes) else b""


def _gives_up(node: Node | None, slot: int) -> bool:
    """Whether a node knows that it gives up a slot, and so says where a key is that it has not."""
    return node is not None and f"[{slot}->-" in own_line(node)


def own_line(node: Node) -> str:
    """What a node says of itself in CLUSTER NODES, with the slots that move; one bracket where it says nothing."""
    try:
        [reply] = ask(node, [("CLUSTER", "NODES")], GLANCE)
    except EmqError:
        return "["
    lines = reply.decode("utf-8", "replace").splitlines() if isinstance(reply, bytes) else []
    return next((line for line in lines if "myself" in line), "[")


def ask(node: Node, commands: Sequence[Words], seconds: float) -> list[Any]:
    """The replies of a node within `seconds`. Raises UnreachableError."""
    with deadline(seconds):
        link = node.take()
        try:
            return link.ask(commands, seconds)
        except ConnectionLost as fault:
            raise UnreachableError(f"no answer: {fault}", where=node.where) from fault
        finally:
            node.give(link)

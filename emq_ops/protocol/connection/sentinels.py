"""The primary that the Sentinels name.

After a planned failover the old primary takes writes for some ten seconds more, until the Sentinels tell it what it is
now. Whatever is written there is lost, so they are asked again and again, not only once something went wrong.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from emq_ops.protocol import deadline
from emq_ops.protocol.connection.link import ConnectionLost, Link
from emq_ops.protocol.connection.node import Node
from emq_ops.protocol.connection.replies import ErrorReply
from emq_ops.protocol.connection.topology import Nodes, Topology, show
from emq_ops.protocol.connection.url import Address, Target
from emq_ops.protocol.errors import DeadlineError, EmqError, UnreachableError

ASK_EVERY = 0.4
"""An answer of the Sentinels that is older, in seconds, is asked for again by the next call."""
HOLDS = 1.0
"""Nothing is sent on an answer that is older, in seconds, as long as a Sentinel answers: meanwhile calls wait."""
GLANCE = 1.0
"""Seconds that the Sentinels may take to answer, all together."""
SUSPECT = 5.0
"""For so many seconds a Sentinel that did not answer is asked only where no other did."""
steady = time.monotonic


class Sentinels(Topology):
    """Thread-safe. A node is checked to be a primary when it is connected to; of several answers the one of the newest
    configuration counts."""

    heals = True

    def __init__(self, target: Target) -> None:
        self._target = target
        self._nodes = Nodes(target, _primary_only, heals=True)
        self._own = target.options.of_sentinels()
        self._links: dict[Address, Link] = {}
        self._suspects: dict[Address, float] = {}
        self._primary: Node | None = None
        self._asked_at = 0.0
        self._silent = False  # whether nobody answered when they were asked last
        self._lock = threading.Lock()  # of what is known
        self._asking = threading.Lock()  # of the links

    def node(self, slot: int | None) -> Node:
        known, age = self._known()
        if known is not None and age < ASK_EVERY:
            return known
        if known is not None and (age < HOLDS or self._silent):
            if not self._asking.acquire(blocking=False):
                return known  # another thread asks
        else:
            self._asking.acquire()
        try:
            known, age = self._known()
            if known is not None and age < ASK_EVERY:
                return known  # another thread asked meanwhile
            return self._take(known)
        finally:
            self._asking.release()

    def _known(self) -> tuple[Node | None, float]:
        """The primary as it was named last, and how many seconds ago that was asked."""
        with self._lock:
            return self._primary, steady() - self._asked_at

    def serves(self, node: Node) -> bool:
        try:
            return self.node(None) is node
        except UnreachableError:
            return True  # nobody says otherwise

    def doubt(self, node: Node | None = None) -> None:
        with self._lock:
            self._primary = None
        self._nodes.drop()

    def at(self, address: Address) -> Node:
        return self._nodes.at(address)

    def close(self) -> None:
        self._nodes.drop()
        with self._asking:
            for link in self._links.values():
                link.close()
            self._links = {}

    def _take(self, known: Node | None) -> Node:
        """Asks, and remembers; where nobody answers, what is `known` goes on."""
        begun, silent = steady(), False
        try:
            found = self._nodes.at(self._find())
        except DeadlineError:
            raise  # the caller's time, not the Sentinels'
        except UnreachableError:
            if known is None:
                raise
            found, silent = known, True
        with self._lock:
            self._asked_at, self._silent = steady() if silent else begun, silent
            if known is None or self._primary is known:  # else something went wrong meanwhile: it is asked again
                self._primary = found
        if known is not None and found is not known:
            known.drop()
        return found

    def _find(self) -> Address:
        faults: list[str] = []
        now = steady()
        sound = [address for address in self._target.addresses if self._suspects.get(address, 0.0) <= now]
        others = [address for address in self._target.addresses if address not in sound]
        named: tuple[int, Address] | None = None
        for addresses in (sound, others):
            for address in addresses:
                answer = self._ask(address, GLANCE / len(addresses), faults)
                if answer is not None and (named is None or answer[0] > named[0]):
                    named = answer
            if named is not None:
                return named[1]
        raise UnreachableError(
            f"no Sentinel names the primary: {'; '.join(faults)}",
            where=self._target.where,
            fix="check the Sentinels' addresses and the name they know it by",
        )

    def _ask(self, address: Address, seconds: float, faults: list[str]) -> tuple[int, Address] | None:
        """What one Sentinel says within `seconds`: the epoch of its configuration and the primary's address. Whatever
        goes wrong is added to `faults`."""
        link = self._links.pop(address, None)
        try:
            with deadline.deadline(seconds):
                if link is None or not link.usable():
                    link = Link(address, self._own, f"Sentinel {show(address)}", tls=self._target.tls).open()
                service = self._target.service
                commands = [("SENTINEL", "GET-MASTER-ADDR-BY-NAME", service), ("SENTINEL", "MASTER", service)]
                reply, facts = link.ask(commands, seconds)
        except (EmqError, ConnectionLost) as fault:
            deadline.check(self._target.where)
            self._suspects[address] = steady() + SUSPECT
            faults.append(str(fault))
            return None
        self._links[address] = link
        if isinstance(reply, ErrorReply):
            faults.append(f"Sentinel {show(address)}: {reply.text}")
        elif reply is None:
            faults.append(f"Sentinel {show(address)} knows no primary '{self._target.service}'")
        else:
            return _epoch(facts), (reply[0].decode(), int(reply[1]))
        return None


def _epoch(facts: Any) -> int:
    """The configuration's epoch in a reply to SENTINEL MASTER; 0 where it does not say."""
    if not isinstance(facts, list):
        return 0
    fields = dict(zip(facts[::2], facts[1::2], strict=False))
    return int(fields.get(b"config-epoch", 0))


def _primary_only(link: Link) -> None:
    """Refuses a link to a replica: an old primary that came back, before the Sentinels told us."""
    try:
        [reply] = link.ask([("INFO", "replication")], 10)
    except ConnectionLost as fault:
        raise UnreachableError(f"can't connect: {fault}", where=link.where) from fault
    if isinstance(reply, bytes) and b"role:master" not in reply:
        raise UnreachableError("this node is a replica now", where=link.where, fix="wait for the Sentinels")

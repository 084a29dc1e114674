"""Sending calls and deciding, for each, whether it may be sent again.

The rule: a call is repeated only where a repeat is harmless. A read always; a write only when it certainly was not
executed: no connection, a command that did not reach the server whole, or a refusal that precedes execution (READONLY,
LOADING, MOVED, NOSCRIPT ...). A write whose reply was lost is an OutcomeUnknownError, once and for all.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from emq_ops.protocol.connection.calls import Call
from emq_ops.protocol.connection.link import ConnectionLost, Link, Words
from emq_ops.protocol.connection.node import Node, Replaced
from emq_ops.protocol.connection.options import Options
from emq_ops.protocol.connection.replies import AT_ONCE, LATER, OTHER_NODE, ErrorReply
from emq_ops.protocol.connection.topology import Topology
from emq_ops.protocol.connection.url import Address
from emq_ops.protocol.deadline import check, deadline, remaining
from emq_ops.protocol.errors import (
    DeadlineError,
    EmqError,
    OutcomeUnknownError,
    RefusedError,
    SlotMovingError,
    UnreachableError,
)

MAX_CALLS, MAX_BYTES = 1_000, 4 * 1024 * 1024
"""What one flush holds at most: bounds the memory of both sides."""
TRIES = 4
"""Attempts where the server can't be reached and nothing will replace it."""
LOOK = "look whether it happened before you send it again"
LOOK_SECONDS, LOOK_AGAIN_SECONDS = 1.0, 5.0
"""How long a second look at the version may take, and when it is tried again."""


class RetryPace:
    """How often, and how long, the same calls are tried: refusals for `patience` seconds, lost connections `TRIES`
    times (or as long as that too, where the place heals)."""

    def __init__(self, patience: float, *, heals: bool) -> None:
        self._end = time.monotonic() + patience
        self._heals = heals
        self._lost = self._at_once = self._rounds = 0

    def at_once(self) -> bool:
        """One more attempt without waiting; False after too many, or too late."""
        self._at_once += 1
        return self._at_once <= 6 and remaining() != 0.0

    def again(self, *, lost: bool) -> bool:
        """Waits, a little longer each time; False when it is time to give up."""
        self._lost += lost
        self._at_once = 0
        wait = min(0.02 * 2**self._rounds, 0.5)
        self._rounds += 1
        left = remaining()
        if (lost and not self._heals and self._lost >= TRIES) or time.monotonic() + wait > self._end:
            return False
        if left is not None and wait >= left:
            return False
        time.sleep(wait)
        return True


@dataclass(slots=True)
class ToRetry:
    """What a flush leaves to be sent again: call numbers, and why. `broken`: a connection ended on its own."""

    at_once: list[int] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    broken: bool = False


def flush(
    link: Link, calls: Sequence[Call], numbers: Sequence[int], results: list[Any], options: Options, *, repeatable: bool
) -> ToRetry:
    """Sends the numbered calls over `link` in one flush, puts each reply or EmqError into its place in `results`, and
    answers what may be sent again."""
    again = ToRetry()
    commands: list[Words] = []
    first: list[int] = []  # where each call's own reply stands
    loaded: set[str] = set()
    for number in numbers:
        call = calls[number]
        if call.ask is not None:
            commands.append(("ASKING",))
        source = call.load and call.script is not None and call.script.sha not in loaded
        if source and call.script is not None:
            loaded.add(call.script.sha)
        first.append(len(commands))
        commands.append(call.wire(source=source))
    try:
        link.send(commands, options.socket_seconds)
    except ConnectionLost as fault:
        for number in numbers:
            _lost(fault, number, link.where, again, results, repeatable or (fault.unsent and len(numbers) == 1))
        return again
    position = 0
    for done, (number, place) in enumerate(zip(numbers, first, strict=True)):
        call = calls[number]
        try:
            while position <= place:
                reply = link.receive(options.socket_seconds + call.blocks)
                position += 1
        except ConnectionLost as fault:
            for late in numbers[done:]:
                _lost(fault, late, link.where, again, results, repeatable)
            return again
        if not isinstance(reply, ErrorReply):
            results[number] = reply
            continue
        if reply.code != "NOSCRIPT":
            call.ask = None
        results[number] = call.error(reply.text, link.where)
        code = reply.code
        if code in AT_ONCE and not reply.inside:
            again.at_once.append(number)
            if code == "NOSCRIPT":
                call.load = True
            else:
                results[number] = Redirected(code, _address(reply, link), results[number])
        elif code in LATER and (code == "READONLY" or not reply.inside):
            again.refused.append(number)
            if code in OTHER_NODE:
                results[number] = Redirected(code, None, results[number])
    return again


@dataclass(slots=True)
class Redirected:
    """A refusal that says something about where the slot lives; `fault` is what stays if nothing comes of it."""

    code: str
    address: Address | None
    fault: EmqError


def _address(reply: ErrorReply, link: Link) -> Address:
    """``MOVED 3999 127.0.0.1:6381``; an empty host means the one that was asked."""
    host, _, port = reply.text.split(" ")[2].rpartition(":")
    if not host:
        host = link.address[0] if isinstance(link.address, tuple) else link.address
    return host, int(port)


def _lost(fault: ConnectionLost, number: int, where: str, again: ToRetry, results: list[Any], harmless: bool) -> None:
    late = remaining() == 0.0
    again.broken = again.broken or not late
    if not harmless:
        why = "the time given ran out before the reply came" if late else f"the reply was lost: {fault}"
        results[number] = OutcomeUnknownError(why, where=where, fix=LOOK)
        return
    if late:
        results[number] = DeadlineError("the time given ran out", where=where, fix="give it more time, or less to do")
    else:
        again.lost.append(number)
        why = "no answer in time" if fault.slow else f"the connection was lost: {fault}"
        results[number] = UnreachableError(
            why, where=where, fix="check that the server runs and that the address is right"
        )


def torn(
    topology: Topology, calls: Sequence[Call], numbers: Sequence[int], results: list[Any]
) -> tuple[list[int], Sequence[int]]:
    """The numbers of those scripts whose slot lies in part on another node, with what to say in `results`, and the
    rest: nothing is judged or written in a slot that is moving."""
    if topology.single:
        return [], numbers
    slots = {number: calls[number].slot for number in numbers if calls[number].script is not None}
    found = topology.torn({slot for slot in slots.values() if slot is not None})
    if not found:
        return [], numbers
    apart = [number for number, slot in slots.items() if slot in found]
    for number in apart:
        results[number] = found[slots[number] or 0]
    return apart, [number for number in numbers if number not in set(apart)]


def chunks(calls: Sequence[Call], numbers: Sequence[int]) -> Iterator[list[int]]:
    """The numbers in portions of at most MAX_CALLS calls and about MAX_BYTES."""
    if len(numbers) == 1:
        yield list(numbers)  # by far the most common: nothing to weigh
        return
    part: list[int] = []
    size = 0
    for number in numbers:
        more = calls[number].size
        if part and (len(part) >= MAX_CALLS or size + more > MAX_BYTES):
            yield part
            part, size = [], 0
        part.append(number)
        size += more
    if part:
        yield part


class CommandDispatcher:
    """Sends calls to the nodes of a topology over pooled links. Thread-safe. `enter` is called before anything is
    sent after a start or a lost connection: it may look at the server and raise an EmqError to refuse it. Where the
    topology knows its members (a Cluster), what it once found holds while it can't be looked at again."""

    def __init__(self, topology: Topology, options: Options, enter: Callable[[], None] | None = None) -> None:
        self.topology = topology
        self.options = options
        self._enter = enter
        self._entered = enter is None
        self._known = False
        self._next_look = 0.0
        self._entering = threading.Lock()
        self._closed = False

    def send(self, calls: Sequence[Call], *, repeatable: bool, node: Node | None = None) -> list[Any]:
        """The reply to each call, or its EmqError, in order. `node`: instead of the owner of the slot."""
        if self._closed:
            return [UnreachableError("this connection was closed", fix="open another")] * len(calls)
        results: list[Any] = [None] * len(calls)
        todo: Sequence[int] = range(len(calls))
        pace = RetryPace(self.options.patience_seconds, heals=self.topology.heals)
        while True:
            try:
                self.enter()
            except EmqError as fault:
                for number in todo:
                    results[number] = fault
                return results
            again = self._round(calls, todo, results, repeatable, node)
            self._learn(calls, results, again)
            todo = sorted({*again.at_once, *again.refused, *again.lost})
            if not todo:
                return results
            waits = again.refused or again.lost
            if not (pace.again(lost=bool(again.lost)) if waits else pace.at_once()):
                return results

    def close(self) -> None:
        """Refuses every later call."""
        self._closed = True

    def enter(self) -> None:
        """Looks at the server where that is due."""
        if self._entered or self._enter is None:
            return
        if self._known and not self.topology.single:
            self._look_again(self._enter)
            return
        with self._entering:
            if not self._entered:
                self._enter()
                self._entered = self._known = True

    def _look_again(self, look: Callable[[], None]) -> None:
        """One thread looks, for a moment; the others go on with what is known, and so does it where nobody answers."""
        if time.monotonic() < self._next_look or not self._entering.acquire(blocking=False):
            return
        try:
            with deadline(LOOK_SECONDS):
                look()
            self._entered = True
        except UnreachableError:
            check()
            self._next_look = time.monotonic() + LOOK_AGAIN_SECONDS
        finally:
            self._entering.release()

    def _learn(self, calls: Sequence[Call], results: list[Any], again: ToRetry) -> None:
        """Takes the hints of refused calls to the topology, and leaves plain errors in their places."""
        doubt = False
        for number in [*again.at_once, *again.refused]:
            hint, call = results[number], calls[number]
            if isinstance(hint, SlotMovingError):
                self._moving(call)
            if not isinstance(hint, Redirected):
                continue
            results[number] = hint.fault
            if hint.code == "ASK":
                call.ask = hint.address
                self._moving(call)
            elif hint.code != "MOVED":
                doubt = True
            elif hint.address is None or (place := call.slot) is None or not self.topology.moved(place, hint.address):
                again.at_once.remove(number)  # nobody to follow it here
        if doubt:
            self.topology.doubt()
        if doubt or again.broken:
            self._entered = self._enter is None

    def _moving(self, call: Call) -> None:
        if call.slot is not None:
            self.topology.moving(call.slot)

    def _round(
        self, calls: Sequence[Call], todo: Sequence[int], results: list[Any], repeatable: bool, fixed: Node | None
    ) -> ToRetry:
        """One attempt at all of `todo`, node by node."""
        again = ToRetry()
        again.refused, todo = torn(self.topology, calls, todo, results)
        for node, numbers in self._by_node(calls, todo, results, again, fixed):
            for part in chunks(calls, numbers):
                try:
                    check(node.where)
                    link = node.take(strict=True)
                except Replaced:
                    for number in part:
                        results[number] = UnreachableError("the connection was lost", where=node.where)
                    again.at_once += part
                    again.broken = True
                    self.topology.doubt(node)
                    continue
                except (DeadlineError, RefusedError) as fault:
                    for number in part:
                        results[number] = fault
                    continue
                except UnreachableError as fault:
                    for number in part:
                        results[number] = fault
                    again.lost += part
                    again.broken = True
                    self.topology.doubt(node)
                    continue
                try:
                    more = flush(link, calls, part, results, self.options, repeatable=repeatable)
                except BaseException:
                    link.close()  # a reply may still be under way
                    raise
                node.give(link)
                again.at_once += more.at_once
                again.refused += more.refused
                again.lost += more.lost
                if more.broken:
                    again.broken = True
                    self.topology.doubt(node)
        return again

    def _by_node(
        self, calls: Sequence[Call], todo: Sequence[int], results: list[Any], again: ToRetry, fixed: Node | None
    ) -> list[tuple[Node, list[int]]]:
        grouped: dict[int, tuple[Node, list[int]]] = {}
        one = self.topology.single and fixed is None
        numbers: Sequence[int] = todo[:1] if one else todo
        for number in numbers:
            call = calls[number]
            same = list(todo) if one else [number]
            try:
                node = fixed or (self.topology.at(call.ask) if call.ask else self.topology.node(call.slot))
            except UnreachableError as fault:
                for each in same:
                    results[each] = fault
                if not isinstance(fault, DeadlineError | RefusedError):
                    again.lost += same
                    again.broken = True
                    self.topology.doubt()
                continue
            grouped.setdefault(id(node), (node, []))[1].extend(same)
        return list(grouped.values())

"""One flush over one link: sends calls, reads their replies, and says which may be sent again.

The rule: a call is repeated only where a repeat is harmless. A read always; a write only when it certainly was not
executed: no connection, a command that did not reach the server whole, or a refusal that precedes execution (READONLY,
LOADING, MOVED, NOSCRIPT ...). A write whose reply was lost is an OutcomeUnknownError, once and for all.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from emq_ops.protocol.connection.calls import Call
from emq_ops.protocol.connection.link import ConnectionLost, Link, Words
from emq_ops.protocol.connection.options import ConnectionOptions
from emq_ops.protocol.connection.replies import AT_ONCE, LATER, OTHER_NODE, ErrorReply
from emq_ops.protocol.connection.topology import Topology
from emq_ops.protocol.connection.url import Address
from emq_ops.protocol.deadline import remaining
from emq_ops.protocol.errors import DeadlineError, EmqError, OutcomeUnknownError, UnreachableError

MAX_CALLS, MAX_BYTES = 1_000, 4 * 1024 * 1024
"""What one flush holds at most: bounds the memory of both sides."""
TRIES = 4
"""Attempts where the server can't be reached and nothing will replace it."""
LOOK = "look whether it happened before you send it again"


class RetryPace:
    """How often, and how long, the same calls are tried: refusals for `patience` seconds, lost connections `TRIES`
    times (or as long as that too, where the place heals; then once at the least: one node's silence may outlast
    patience, and another serve by now). No patience: nothing is tried again."""

    def __init__(self, patience: float, *, heals: bool) -> None:
        self._patience = patience
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
        if lost and not self._heals and self._lost >= TRIES:
            return False
        first = lost and self._heals and self._lost == 1 and self._patience > 0
        if time.monotonic() + wait > self._end and not first:
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
    link: Link,
    calls: Sequence[Call],
    numbers: Sequence[int],
    results: list[Any],
    options: ConnectionOptions,
    *,
    repeatable: bool,
) -> ToRetry:
    """Sends the numbered calls over `link` in one flush, puts each reply or EmqError into its place in `results`, and
    returns what may be sent again."""
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
    """The numbers of those calls whose slot lies in part on another node, with what to say in `results`, and the rest:
    nothing is judged or written in a slot that is moving."""
    if topology.single:
        return [], numbers
    slots: dict[int, int] = {}
    scripts: set[int] = set()
    proving: set[int] = set()
    for number in numbers:
        call = calls[number]
        if (slot := call.slot) is None or (call.script is not None and call.script.one_key):
            continue
        slots[number] = slot
        if call.script is not None:
            scripts.add(slot)
        if call.proof is not None:
            proving.add(slot)
    found = topology.torn(set(slots.values()), scripts, proving)
    for number, slot in slots.items():
        if calls[number].proof is not None:
            calls[number].proof = topology.proof(slot)
    if not found:
        return [], numbers
    apart = [number for number, slot in slots.items() if slot in found]
    for number in apart:
        results[number] = found[slots[number]]
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

"""Sending calls to the nodes that own them, and again where that is harmless (``flush``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from emq_ops.protocol.connection.calls import Call
from emq_ops.protocol.connection.flush import Redirected, RetryPace, ToRetry, chunks, flush, torn
from emq_ops.protocol.connection.gate import Gate
from emq_ops.protocol.connection.node import Node, Replaced
from emq_ops.protocol.connection.options import ConnectionOptions
from emq_ops.protocol.connection.topology import Topology
from emq_ops.protocol.deadline import check
from emq_ops.protocol.errors import (
    AccessRefusedError,
    DeadlineError,
    EmqError,
    SlotMovingError,
    UnreachableError,
)


class CommandDispatcher:
    """Sends calls to the nodes of a topology over pooled links. Thread-safe. `gate` may look at the server before
    anything is sent after a start or a lost connection, and refuse it."""

    def __init__(self, topology: Topology, options: ConnectionOptions, gate: Gate | None = None) -> None:
        self.topology, self.options, self.gate = topology, options, gate
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
                if self.gate is not None:
                    self.gate.enter()
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
        if (doubt or again.broken) and self.gate is not None:
            self.gate.close()

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
                if fixed is None and not self.topology.serves(node):  # another was named since the first portion
                    for number in part:
                        results[number] = UnreachableError("another node is the primary now", where=node.where)
                    again.at_once += part
                    continue
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
                except (DeadlineError, AccessRefusedError) as fault:
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
                if not isinstance(fault, DeadlineError | AccessRefusedError):
                    again.lost += same
                    again.broken = True
                    self.topology.doubt()
                continue
            grouped.setdefault(id(node), (node, []))[1].extend(same)
        return list(grouped.values())

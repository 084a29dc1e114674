"""Calls over one link that is never replaced: what they see is one life of one node."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from emq_ops.protocol.connection.calls import Call
from emq_ops.protocol.connection.flush import Redirected, RetryPace, chunks, flush, torn
from emq_ops.protocol.connection.link import Link
from emq_ops.protocol.connection.node import Node
from emq_ops.protocol.connection.options import ConnectionOptions
from emq_ops.protocol.connection.topology import Topology
from emq_ops.protocol.errors import EmqError, ReconnectedError, SlotMovingError


class Pinned:
    """The shape of a Dispatcher over one link. Once the link ended or its node gave up the slot, every call is a
    ReconnectedError; a write whose reply was lost is an OutcomeUnknownError first. `topology` gets the node's hints."""

    def __init__(self, link: Link, node: Node, options: ConnectionOptions, topology: Topology) -> None:
        self.options = options
        self._node, self._topology = node, topology
        self._link = link
        self._why: str | None = None
        self._fix = "try again"
        self._lock = threading.Lock()

    def send(self, calls: Sequence[Call], *, repeatable: bool, node: Node | None = None) -> list[Any]:
        """As Dispatcher.send; `node` can only be the link's own."""
        with self._lock:
            results: list[Any] = [None] * len(calls)
            todo: Sequence[int] = range(len(calls))
            pace = RetryPace(self.options.patience_seconds, heals=False)
            while todo:
                todo, waits = self._round(calls, todo, results, repeatable)
                if todo and not (pace.again(lost=False) if waits else pace.at_once()):
                    break
            return results

    def _round(
        self, calls: Sequence[Call], todo: Sequence[int], results: list[Any], repeatable: bool
    ) -> tuple[list[int], bool]:
        left, todo = torn(self._topology, calls, todo, results)
        waits = bool(left)
        for part in chunks(calls, todo):
            if self._why is None and not self._topology.serves(self._node):
                self._why = "another node is the primary now"
                self._link.close()
            if self._why is not None:
                for number in part:
                    results[number] = self._gone()
                continue
            again = flush(self._link, calls, part, results, self.options, repeatable=repeatable)
            for number in [*again.at_once, *again.refused]:
                waits = self._hint(calls[number], number, results) or waits
                if not isinstance(results[number], Redirected):
                    left.append(number)
            waits = waits or bool(again.refused)
            if not self._link.is_open:
                self._end(next((results[number] for number in part if isinstance(results[number], EmqError)), None))
            for number in part:
                if isinstance(results[number], Redirected) or number in again.lost:
                    results[number] = self._gone()
        return left, waits

    def _hint(self, call: Call, number: int, results: list[Any]) -> bool:
        """Takes a refusal to the topology; whether the same link may serve the call in a while."""
        hint = results[number]
        fault = hint.fault if isinstance(hint, Redirected) else hint
        place = call.slot
        if isinstance(fault, SlotMovingError):
            results[number] = fault
            if place is not None:
                self._topology.moving(place)
            return True
        if isinstance(hint, Redirected):
            if hint.address is not None and place is not None:
                self._topology.moved(place, hint.address)
            self._end(hint.fault)
        return False

    def close(self) -> None:
        """The link goes to another user; whoever still holds this gets errors."""
        self._why = self._why or "it is closed"

    def _end(self, fault: EmqError | None) -> None:
        if self._why is None:
            self._why = "it was closed" if fault is None else fault.what
            self._fix = (fault and fault.fix) or self._fix
        self._link.close()

    def _gone(self) -> EmqError:
        what = f"the connection ended in the middle: {self._why}"
        return ReconnectedError(what, where=self._link.where, fix=self._fix)

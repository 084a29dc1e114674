"""Whether anybody was seen to claim a queue's flat jobs: EchoMQ's Consumer claims lanes only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from emq_ops.protocol.errors import EmqError
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Arg, Server
from emq_ops.protocol.transitions.settle import COMPLETIONS

SAMPLE = 100
"""Jobs in flight and settled records that are looked at."""


@dataclass(frozen=True, slots=True)
class FlatLook:
    """Flat jobs of a queue that wait; whether one in flight or settled lately shows somebody who claims them."""

    waiting: int
    claimed: bool


def look_at_flat(server: Server, queues: Iterable[str]) -> dict[str, FlatLook]:
    """One look at each queue, in one flush. Those that can't be read are left out: their passes say why."""
    names = list(queues)
    keys = map(keys_of, names)
    calls: list[tuple[list[str], list[Arg]]] = [
        ([k.pending, k.active, k.stream(COMPLETIONS)], [k.base, SAMPLE]) for k in keys
    ]
    replies = server.run_many(load("flat_look"), calls, readonly=True)
    return {
        queue: FlatLook(int(reply[0]), bool(reply[1] or reply[2]))
        for queue, reply in zip(names, replies, strict=True)
        if not isinstance(reply, EmqError)
    }

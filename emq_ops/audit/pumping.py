"""Repeatables that nobody was seen to fire, and flat jobs that nobody was seen to claim: facts of the deployment."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.observe.claimers import look_at_flat
from emq_ops.passes.observe.pumps import UNCLAIMED, look_at_pumps, pumped_lately, unfired
from emq_ops.protocol.server import Server


def pumping(server: Server, ledger: Ledger | None, queues: Sequence[str], promotes: Callable[[str], bool]) -> list[str]:
    """A sentence for each queue that has such. `promotes`: whether a pass of ours fires there."""
    told: list[str] = []
    flat = look_at_flat(server, queues)
    for queue, seen in look_at_pumps(server, queues).items():
        pumped = bool(seen.advanced) or (ledger is not None and queue in pumped_lately(ledger, queue, seen.now_ms))
        said = None if promotes(queue) else unfired(seen, pumped=pumped)
        if said:
            told.append(f"{queue}: {said}")
        if seen.advanced:
            told.append(f"{queue}: another pump fired repeatable '{seen.advanced[0].name}'")
        here = flat.get(queue)
        if here is not None and here.waiting and not here.claimed:
            told.append(f"{queue}: {here.waiting:,} flat jobs wait, and {UNCLAIMED}")
    return told

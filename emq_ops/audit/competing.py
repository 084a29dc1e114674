"""Who competes with our passes: a fact of the deployment, told wherever it explains what is seen."""

from __future__ import annotations

from collections.abc import Sequence

from emq_ops.ledger import alerts
from emq_ops.ledger.ledger import Ledger
from emq_ops.protocol.ids import at

_COMPETING = {
    "recoverer": "workers recover lapsed leases themselves, uncounted: a sweep beside them sees few stalls",
    "sweeper": "somebody else runs a stalled sweep here: two thresholds are in force",
    "archiver": "somebody else trims or archives a stream of this queue",
    "pump": "somebody else fires its repeatables: with `promote` beside it, they fire twice",
}


def competing(ledger: Ledger, queues: Sequence[str] | None = None) -> list[str]:
    """A sentence for each competitor of our passes that was noticed on these queues (None: on any)."""
    return [
        f"{rival.queue}: competing {rival.kind}: {_COMPETING.get(rival.kind, 'it does what our passes do')} "
        f"(seen {rival.times} times, last {at(rival.last_ms):%Y-%m-%d %H:%M:%S}Z)"
        for queue in ([None] if queues is None else sorted(queues))
        for rival in alerts.competing(ledger, queue)
    ]

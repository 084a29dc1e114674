"""Where the server is not as applied: looked for every ``daemon.drift``; an alert, once, until it is so again."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from emq_ops.daemon import clock
from emq_ops.daemon.events import DriftEnded, DriftSeen
from emq_ops.deploy.deployment import Deployment
from emq_ops.deploy.model import Drift
from emq_ops.deploy.render import value
from emq_ops.deploy.store.revisions import Revision
from emq_ops.ledger.alerts import Alert
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.events import Emit, alert
from emq_ops.protocol.server import Server

KIND = "drift"
"""The alert."""
SHOWN = 5
"""So many settings an alert names."""
AGAIN_SECONDS = 60.0
"""After a look that failed, the next one comes at the latest then."""


class Drifting:
    """Looks at the queues that this daemon leads, from one thread. `found`: queue -> how many of its settings are not
    as applied; may be read from any thread."""

    def __init__(self, server: Server, ledger: Ledger, env: Mapping[str, str], emit: Emit) -> None:
        self._server, self._ledger, self._env, self._emit = server, ledger, env, emit
        self._told: dict[str, list[str]] = {}
        self._next_at = 0.0
        self.found: dict[str, int] = {}
        self.looked = False
        """Whether `found` tells anything yet."""

    def look(self, every_ms: int | None, revision: Revision, led: Collection[str]) -> None:
        """One look where it is time for one; `every_ms`: None where nobody asks for any. Raises what server and ledger
        raise; what is new is told at the next look then."""
        if every_ms is None:
            self._told, self.found, self._next_at, self.looked = {}, {}, 0.0, True
            return
        if clock.steady() < self._next_at or not led:
            return
        self._next_at = clock.steady() + min(every_ms / 1000, AGAIN_SECONDS)
        deployment = Deployment(self._server, self._ledger, revision.document.wiring(self._env))
        by_queue: dict[str, list[Drift]] = {}
        for one in deployment.drift(frozenset(led)):
            by_queue.setdefault(one.queue, []).append(one)
        for queue, drifts in by_queue.items():
            self._tell(queue, drifts)
        for queue in self._told.keys() - by_queue.keys():
            del self._told[queue]
            if queue in led:
                self._emit(DriftEnded(queue))
        self.found, self.looked = {queue: len(drifts) for queue, drifts in by_queue.items()}, True
        self._next_at = clock.steady() + every_ms / 1000

    def _tell(self, queue: str, drifts: list[Drift]) -> None:
        said = [f"{one.setting}: applied {value(one.applied)}, on the server {value(one.live)}" for one in drifts]
        if self._told.get(queue) == said:
            return
        settings = [one.setting for one in drifts]
        more = f"; and {len(said) - SHOWN} more" if len(said) > SHOWN else ""
        text = "; ".join(said[:SHOWN]) + more + f" (`emq-ops apply --revert {queue}` puts it back)"
        alert(self._ledger, self._emit, Alert(queue, KIND, text, clock.now_ms(), {"settings": settings}))
        self._emit(DriftSeen(queue, settings=settings))
        self._told[queue] = said

"""What a daemon knows of the standing of its queues, for alerts, metrics and pages: looks, what stands still, what an
operator asked for, how large the archive is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from emq_ops.daemon.looks import QueueLooks
from emq_ops.daemon.restrictions import ActiveRestriction, active_restrictions
from emq_ops.daemon.tasks import PassTask
from emq_ops.daemon.wedged import Wedged
from emq_ops.deploy.document import Document
from emq_ops.passes.frame.context import Services

LOOK_SECONDS = 1.0
"""How long a node may take to say how some queues stand."""


class QueueMonitor:
    """Holds it. `led`: the queues that the daemon leads; `tasks`: those that it keeps the timetable of; both are asked
    from the thread that looks."""

    def __init__(
        self, services: Services, led: Callable[[], Iterable[str]], tasks: Callable[[], Iterable[PassTask]]
    ) -> None:
        self._services, self._led, self._tasks = services, led, tasks
        self.looks = QueueLooks(services.server.hurried(LOOK_SECONDS), self._streams, self._weigh)
        self.wedged = Wedged(services.state, services.emit)
        self.restrictions: list[ActiveRestriction] = []
        """What stood at the last beat."""
        self.archive: tuple[int, int, int] | None = None
        """Segments, records and bytes of the archive in its store, of the last minute."""

    def judge(self) -> None:
        """Tells what stands still. Raises what the ledger raises."""
        self.wedged.judge(self.looks.found)

    def beat(self, document: Document, env: Mapping[str, str]) -> dict[str, Any]:
        """Reads what was asked for, and returns what `ps` is told. Raises what the ledger raises."""
        self.restrictions = active_restrictions(self._services.state, document, env, self.looks.now_ms())
        return {"wedged": stands} if (stands := self.wedged.marks()) else {}

    def _streams(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {queue: [] for queue in self._led()}
        for task in self._tasks():
            if task.what.many and task.queue in found:
                found[task.queue].append(task.target)
        return found

    def _weigh(self) -> None:
        if any(task.stores for task in self._tasks()):
            self.archive = self._services.stores.local().remote_totals()

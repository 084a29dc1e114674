"""Who fires the repeatables of the queues that this daemon leads, if anybody does: looked for now and then."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable

from emq_ops.daemon.tasks import PassTask
from emq_ops.ledger.alerts import Alert
from emq_ops.ledger.ledger import Ledger
from emq_ops.overview.wedges import OVERDUE
from emq_ops.passes.events import Emit, alert
from emq_ops.passes.observe.pumps import look_at_pumps, note_pump, unfired
from emq_ops.passes.promote.declared import PROMOTE
from emq_ops.protocol.errors import ServerError, WireError
from emq_ops.protocol.server import Server

EVERY_SECONDS = 15.0
ALL_EVERY = 20
"""Each so many-th look is at all queues."""


def fired_by(tasks: Iterable[PassTask]) -> set[str]:
    """The queues whose repeatables one of `tasks` fires."""
    return {task.queue for task in tasks if task.what is PROMOTE}


class Pumps:
    """For one thread."""

    def __init__(self, server: Server, ledger: Ledger, emit: Emit) -> None:
        self._server, self._ledger, self._emit = server, ledger, emit
        self._told: set[str] = set()
        self._looks = 0

    def look(
        self, queues: Iterable[str], promoted: Collection[str] = (), without: Collection[str] = frozenset()
    ) -> None:
        """One look at each; `promoted`: those where a pass of ours fires; `without`: those that had no repeatable a
        moment ago, which are looked at now and then. Another pump is noted; repeatables by the calendar where none of
        ours fires are an alert, once: nobody else does. Raises what the ledger raises."""
        if self._looks % ALL_EVERY:
            queues = [queue for queue in queues if queue not in without]
        self._looks += 1
        for queue, seen in look_at_pumps(self._server, queues).items():
            if seen.marks:
                with contextlib.suppress(ServerError, WireError):  # one queue that can't be written holds up no other
                    note_pump(self._server, self._ledger, self._emit, queue, seen)
            text = unfired(seen, pumped=True) if queue not in promoted else None
            if text is None:
                self._told.discard(queue)
            elif queue not in self._told:
                self._told.add(queue)
                alert(self._ledger, self._emit, Alert(queue, OVERDUE, text, seen.now_ms))

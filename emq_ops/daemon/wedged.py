"""Queues that stand still without an error: looked for now and then; an alert, once, and a mark for `ps`."""

from __future__ import annotations

from collections.abc import Mapping

from emq_ops.daemon.events import QueueMoves
from emq_ops.ledger.alerts import Alert
from emq_ops.ledger.ledger import Ledger
from emq_ops.overview.look import QueueLook
from emq_ops.overview.wedges import wedges
from emq_ops.passes.events import Emit, alert

EVERY_SECONDS = 15.0
STANDS_MS = 60_000
"""So long, by the server's clock, a queue must have stood still before it is told."""
MOST_TOLD = 200
"""So many queues a daemon tells `ps` of."""


class Wedged:
    """Judges the looks at the queues that this daemon leads, from one thread. `told`: queue -> kind -> words, of those
    that stand still now; may be read from any thread."""

    def __init__(self, ledger: Ledger, emit: Emit) -> None:
        self._ledger, self._emit = ledger, emit
        self._looks: dict[str, QueueLook] = {}
        self._since: dict[tuple[str, str], int] = {}
        self.told: dict[str, dict[str, str]] = {}

    def judge(self, looks: Mapping[str, QueueLook]) -> None:
        """What each of these looks says beside the one before; one that was judged already says nothing new. Raises
        what the ledger raises; what is new is told at the next look then."""
        for queue, now in looks.items():
            before = self._looks.get(queue)
            if before is not now:
                self._judge(queue, now, wedges(before, now) if before is not None else {})
        self._looks = dict(looks)
        for queue in self.told.keys() - looks.keys():
            self._forget(queue)

    def marks(self) -> dict[str, dict[str, str]]:
        """What `ps` is told: of the first `MOST_TOLD` queues."""
        return dict(sorted(self.told.items())[:MOST_TOLD])

    def _judge(self, queue: str, now: QueueLook, found: dict[str, str]) -> None:
        for key in [key for key in self._since if key[0] == queue and key[1] not in found]:
            del self._since[key]
        standing = {}
        for kind, words in found.items():
            since = self._since.setdefault((queue, kind), now.now_ms)
            if now.now_ms - since >= STANDS_MS:
                standing[kind] = words
        before = self.told.get(queue, {})
        for kind in standing.keys() - before.keys():
            facts = {"waiting": now.waiting, "active": now.active, "lanes_full": now.lanes_full}
            alert(self._ledger, self._emit, Alert(queue, kind, standing[kind], now.now_ms, facts))
        if standing:
            self.told = {**self.told, queue: standing}
        elif before:
            self._forget(queue)
            self._emit(QueueMoves(queue))

    def _forget(self, queue: str) -> None:
        self.told = {name: kinds for name, kinds in self.told.items() if name != queue}

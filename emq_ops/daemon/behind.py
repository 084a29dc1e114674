"""Whether the daemon keeps up with its tasks. Where it does not for a while, that is an alert, once, until it does."""

from __future__ import annotations

from emq_ops.daemon import clock
from emq_ops.daemon.dispatch import Dispatcher
from emq_ops.daemon.events import CaughtUp
from emq_ops.daemon.timers import Timers
from emq_ops.ledger.alerts import Alert
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.events import Emit, alert

GRACE_SECONDS = 10.0
"""A run that was due for longer, and could have begun, is one that the daemon did not keep up with."""
EVERY_SECONDS = 10.0
LOOKS = 3
"""So many looks in a row must find the same before it is told: a moment's load is nobody's business."""
KIND = "behind"
"""The alert."""
_Key = tuple[str, str]


class Behind:
    """Looks every `EVERY_SECONDS`, from one thread. `count`: the tasks that are behind; `longest_s`: for how long the
    first of them has been due. Both may be read from any thread."""

    def __init__(self, dispatcher: Dispatcher, timers: Timers, ledger: Ledger, emit: Emit) -> None:
        self._dispatcher, self._timers, self._ledger, self._emit = dispatcher, timers, ledger, emit
        self.count, self.longest_s = 0, 0.0
        self._looks = 0
        self._told = False

    def look(self) -> None:
        """Raises what the ledger raises; it is told at the next look then."""
        found = {key: age for key, age in self.ages().items() if age > GRACE_SECONDS}
        self.count, self.longest_s = len(found), max(found.values(), default=0.0)
        self._looks = self._looks + 1 if bool(found) != self._told else 0
        if self._looks < LOOKS:
            return
        if found:
            queue, task = max(found, key=lambda key: found[key])
            text = (
                f"{len(found)} of {len(self._timers.times())} tasks have been due for more than {GRACE_SECONDS:.0f} s, "
                f"{queue}/{task} for {self.longest_s:.0f} s: this host does not keep up with them "
                "(longer intervals, fewer queues a daemon, or another host beside it)"
            )
            facts = {"tasks": len(found), "longest_s": round(self.longest_s), "queue": queue, "task": task}
            alert(self._ledger, self._emit, Alert("*", KIND, text, clock.now_ms(), facts))
        else:
            self._emit(CaughtUp("*"))
        self._told, self._looks = bool(found), 0

    def ages(self) -> dict[_Key, float]:
        """For how long each task has been due that is, seconds: its cue was given or not. From any thread."""
        now = clock.now()
        late = {key: (now - fires).total_seconds() for key, (_, fires) in self._timers.times().items() if fires < now}
        return {**late, **self._dispatcher.due_for()}

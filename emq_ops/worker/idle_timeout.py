"""Watching over the jobs in hand: which are waited for, and when it has been enough."""

from __future__ import annotations

import time
from collections.abc import Callable

from emq_ops.worker.events import Silent, WorkerEvent
from emq_ops.worker.held_jobs import HeldJob, HeldJobs

FIRST_WORD_S = 10.0
"""After so much silence the first word; then twice that, and so on."""


class IdleTimeout:
    """A job shows a sign of life when its handler begins, and at each checkpoint (extend, progress, log).

    `give_up`: ms without any sign from any job in hand after which the wait ends; None: never.
    """

    def __init__(
        self, queue: str, held_jobs: HeldJobs, emit: Callable[[WorkerEvent], None], give_up: int | None
    ) -> None:
        self._queue, self._held, self._emit = queue, held_jobs, emit
        self._give_up = give_up
        self._next_word = FIRST_WORD_S

    def over(self) -> bool:
        """Whether it has been enough. Says which jobs are waited for, the longer it takes the seldomer."""
        held = self._held.all()
        if not held or any(one.settling for one in held):
            return False  # a settlement is ours to bring to its end, not the handler's
        silence = time.monotonic() - max(one.sign for one in held)
        if self._give_up is not None and silence * 1000 >= self._give_up:
            self._say(held, silence, left=True)
            return True
        if silence < FIRST_WORD_S:
            self._next_word = FIRST_WORD_S
        elif silence >= self._next_word:
            self._next_word = 2 * silence
            self._say(held, silence, left=False)
        return False

    def _say(self, held: list[HeldJob], silence: float, *, left: bool) -> None:
        jobs = tuple(dict.fromkeys(one.claim.job for one in held))
        self._emit(Silent(self._queue, jobs, round(silence * 1000), left))

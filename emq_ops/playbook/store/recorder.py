"""What a run does, written down as it goes: before a task changes anything its decision, after it its outcome."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, update

from emq_ops.database.statements import insert
from emq_ops.ledger import runs
from emq_ops.ledger.ledger import Ledger, clock_ms
from emq_ops.playbook.secrets import Secrets
from emq_ops.playbook.store.records import PlaybookRun, StepRecord
from emq_ops.playbook.store.schema import play_runs, play_steps
from emq_ops.protocol.errors import EmqError

BEAT_MS = 15_000
KEEP_MS = 250
"""For so long what changed nothing may wait to be written; it is written before the next change all the same."""


class TakenOverError(EmqError):
    """Another process resumed this run; this one must change nothing more."""


class Recorder:
    """Writes what a run does. Thread-safe; writers that wait at the same time share one transaction."""

    def __init__(self, ledger: Ledger, record: PlaybookRun, secrets: Secrets | None = None) -> None:
        self._ledger, self._record, self._secrets = ledger, record, secrets or Secrets({})
        self._guard, self._turn = threading.Lock(), threading.Lock()
        self._waiting: dict[tuple[str, str, int], StepRecord] = {}
        self._beat = time.monotonic()
        self._fault: EmqError | None = None

    def later(self, step: StepRecord) -> None:
        """Writes `step` with the next commit."""
        with self._guard:
            self._waiting[step.key] = step

    def now(self, *steps: StepRecord) -> None:
        """Writes `steps` and all that waits; returns when they are kept. Raises TakenOverError, DatabaseError."""
        for step in steps:
            self.later(step)
        self._flush()

    def soon(self) -> None:
        """As `now`, unless something was written a moment ago."""
        if self._age_ms() >= KEEP_MS:
            self._flush()

    def beat(self) -> None:
        """Gives a sign of life if the last is old, and writes what waited long enough."""
        age = self._age_ms()
        if age >= BEAT_MS or (age >= KEEP_MS and self._waiting):
            self._flush(beat=True)

    def _age_ms(self) -> float:
        """How old the last sign of life is, by a clock that never steps."""
        return (time.monotonic() - self._beat) * 1000

    def finish(self, status: str, counts: dict[str, Any], error: str | None = None) -> None:
        """Writes what waits, and how the run ended (a word of `emq_ops.ledger.runs`)."""
        self._flush(lambda connection: runs.finish(connection, self._record.run, status, counts=counts, error=error))

    def _flush(self, also: Callable[[Connection], None] | None = None, *, beat: bool = False) -> None:
        with self._turn:  # whoever comes next finds that its steps were taken along
            if self._fault is not None:
                raise self._fault
            with self._guard:
                taken, self._waiting = list(self._waiting.values()), {}
            if not (taken or also or beat):
                return
            rows = [self._row(step) for step in taken]
            try:
                with self._ledger.write() as connection:
                    self._own(connection)
                    if rows:
                        new = insert(connection, play_steps)
                        kept = {name: new.excluded[name] for name in ("attempt", "plan", "outcome")}
                        keys = ["run", "task", "queue", "item"]
                        connection.execute(new.on_conflict_do_update(index_elements=keys, set_=kept), rows)
                    if also is not None:
                        also(connection)
            except EmqError as fault:
                self._fault = fault
                raise

    def _row(self, step: StepRecord) -> dict[str, Any]:
        step = self._secrets.stored(step)
        return {
            "run": self._record.run,
            "task": step.task,
            "queue": step.queue,
            "item": step.item,
            "attempt": step.attempt,
            "plan": json.dumps(step.plan.as_row()) if step.plan is not None else None,
            "outcome": json.dumps(step.outcome.kept()) if step.outcome is not None else None,
        }

    def _own(self, connection: Connection) -> None:
        """Refuses to go on where the run was taken over; gives a sign of life otherwise."""
        ours = (play_runs.c.run == self._record.run) & (play_runs.c.claim == self._record.claim)
        done = connection.execute(update(play_runs).where(ours).values(beat_ms=clock_ms(connection)))
        if done.rowcount != 1:
            raise TakenOverError(f"run {self._record.run} was resumed by another process", fix="leave it to that one")
        self._beat = time.monotonic()

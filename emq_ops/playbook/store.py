"""Runs of playbooks in the state database: what was asked, who runs it, what is done.

Before a task changes anything, its plan is written; after it, its outcome. A run is resumed by whoever raises its
*claim*; an older holder finds out at its next write, which is before its next change.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from sqlalchemy import BigInteger, Column, Connection, ForeignKey, String, Table, Text, bindparam, select, update

from emq_ops.database.statements import insert
from emq_ops.ledger import runs as words
from emq_ops.ledger.ledger import Ledger, host_ms
from emq_ops.ledger.schema import metadata, runs
from emq_ops.passes.lease.holder import Holder, machine_id, who
from emq_ops.playbook.outcome import CHANGED, Outcome
from emq_ops.playbook.registry import Plan
from emq_ops.playbook.secrets import Secrets
from emq_ops.protocol.errors import BadInputError, EmqError
from emq_ops.protocol.ids import mint, require

BEAT_MS = 15_000
KEEP_MS = 250
"""For so long what changed nothing may wait to be written; it is written before the next change all the same."""
GONE_MS = 120_000
"""Another host's run that gave no sign for so long may be taken over."""
WHOLE = -1
"""The item number of a task as a whole."""
StepKey = tuple[str, str, int]
"""Task, queue, item: what names a step within its run."""
_DROPPED, _RESET = "~", "+"  # behind the task's key, with the claim that did it: a step of an earlier life
_EARLIER = re.compile(r"(.*)([~+])([0-9]+)")

play_runs = Table(
    "play_runs",
    metadata,
    Column("run", String(14), ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("playbook", Text, nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("options", Text, nullable=False),
    Column("queues", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("claim", BigInteger, nullable=False),
    Column("beat_ms", BigInteger, nullable=False),
)

play_steps = Table(
    "play_steps",
    metadata,
    Column("run", String(14), ForeignKey("play_runs.run", ondelete="CASCADE"), primary_key=True),
    Column("task", String(600), primary_key=True),
    Column("queue", String(255), primary_key=True),
    Column("item", BigInteger, primary_key=True),
    Column("attempt", BigInteger, nullable=False),
    Column("plan", Text),
    Column("outcome", Text),
)


class TakenOverError(EmqError):
    """Another process resumed this run; this one must change nothing more."""


@dataclass(frozen=True, slots=True)
class Step:
    """One item of one task on one queue (`item` WHOLE: the task's outcome). `plan` stands once it was begun."""

    task: str
    queue: str
    item: int
    attempt: int
    plan: Plan | None
    outcome: Outcome | None

    @property
    def key(self) -> StepKey:
        """What names it within its run."""
        return self.task, self.queue, self.item


@dataclass
class RunRecord:
    """A run as asked: `playbook` is its absolute path, `options` what the command line said, `queues` those of each
    play (by its index, as text). Of a run that failed and was resumed: `lives`, the claim under which a task of a queue
    began anew; `changed`, tasks that had changed something and are looked at again."""

    run: str
    playbook: str
    sha256: str
    options: dict[str, Any]
    queues: dict[str, list[str]]
    claim: int
    steps: dict[StepKey, Step]
    lives: dict[tuple[str, str], int] = field(default_factory=dict)
    changed: set[tuple[str, str]] = field(default_factory=set)


Retry = Callable[[RunRecord], tuple[set[StepKey], set[StepKey]]]
"""Of a run that failed: the steps that begin anew, and those that are looked at again."""


def begin(
    ledger: Ledger, playbook: str, sha256: str, options: dict[str, Any], queues: dict[str, list[str]]
) -> RunRecord:
    """Records a new run and answers it."""
    record = RunRecord(mint("RUN"), playbook, sha256, options, queues, 1, {})
    with ledger.write() as connection:
        connection.execute(
            runs.insert().values(
                id=record.run,
                kind="check" if options.get("check") else "play",
                queue="*",
                status=words.RUNNING,
                started_ms=host_ms(),
                trigger="command",
                holder=who(),
                policy=json.dumps({"playbook": playbook}),
            )
        )
        connection.execute(
            play_runs.insert().values(
                run=record.run,
                playbook=playbook,
                sha256=sha256,
                options=json.dumps(options),
                queues=json.dumps(queues),
                owner=_owner(),
                claim=1,
                beat_ms=host_ms(),
            )
        )
    return record


def look(ledger: Ledger, run: str) -> RunRecord:
    """What was asked of a run (without its steps). Raises BadInputError for one that is not there."""
    with ledger.read() as connection:
        row, _ = _look(connection, run, ledger.where)
    return _record(run, row, [])


def claim(ledger: Ledger, run: str, retry: Retry) -> RunRecord:
    """Takes over a run that was interrupted, or that failed: `retry` says what of it is done again. Raises
    BadInputError for one that is not there, ended well, or is alive."""
    with ledger.write() as connection:
        row, status = _look(connection, run, ledger.where, lock=True)
        if status not in (words.RUNNING, words.INTERRUPTED, words.FAILED):
            raise BadInputError(
                f"run {run} ended ({status}); only one that failed or was interrupted goes on",
                fix="start it anew; --start-at-task begins in the middle",
            )
        owner = Holder(**json.loads(row["owner"]))
        if status == words.RUNNING and not _gone(owner, row["beat_ms"]):
            raise BadInputError(f"run {run} is still being run by {owner}", fix="end that process, or wait for it")
        values = {"owner": _owner(), "claim": row["claim"] + 1, "beat_ms": host_ms()}
        connection.execute(update(play_runs).where(play_runs.c.run == run).values(values))
        ours = {"status": words.RUNNING, "holder": who(), "ended_ms": None, "error": None}
        connection.execute(update(runs).where(runs.c.id == run).values(ours))
        record = _record(run, row, _steps(connection, run))
        record.claim += 1
        if status == words.FAILED:
            for mark, keys in zip((_DROPPED, _RESET), retry(record), strict=True):
                _set_aside(connection, run, keys, f"{mark}{record.claim}")
            record = _record(run, {**row, "claim": record.claim}, _steps(connection, run))
    return record


def _steps(connection: Connection, run: str) -> list[Step]:
    return [_step(found) for found in connection.execute(select(play_steps).where(play_steps.c.run == run))]


def _set_aside(connection: Connection, run: str, keys: Iterable[StepKey], mark: str) -> None:
    c = play_steps.c
    ours = (c.run == run) & (c.task == bindparam("of")) & (c.queue == bindparam("on")) & (c.item == bindparam("at"))
    rows = [{"of": task, "on": queue, "at": item} for task, queue, item in keys]
    if rows:
        connection.execute(update(play_steps).where(ours).values(task=c.task + mark), rows)


def _record(run: str, row: Any, steps: list[Step]) -> RunRecord:
    options, queues = json.loads(row["options"]), json.loads(row["queues"])
    record = RunRecord(run, row["playbook"], row["sha256"], options, queues, int(row["claim"]), {})
    for step in steps:
        earlier = _EARLIER.fullmatch(step.task)
        if earlier is None:
            record.steps[step.key] = step
            continue
        place = (earlier[1], step.queue)
        if earlier[2] == _DROPPED:
            record.lives[place] = max(int(earlier[3]), record.lives.get(place, 0))
        elif step.outcome is not None and step.outcome.status == CHANGED:
            record.changed.add(place)
    return record


def _look(connection: Connection, run: str, where: str, *, lock: bool = False) -> tuple[Any, str]:
    wanted: Any = select(*play_runs.c, runs.c.status).join(runs, runs.c.id == play_runs.c.run)
    wanted = wanted.where(play_runs.c.run == require(run, "RUN"))
    found = connection.execute(wanted.with_for_update() if lock else wanted).mappings().first()
    if found is None:
        raise BadInputError(
            f"no run of a playbook is called {run}", where=where, fix="see `emq-ops runs ls --kind play`"
        )
    return found, str(found["status"])


def _owner() -> str:
    return json.dumps(asdict(Holder.me("play")))


def _gone(owner: Holder, beat_ms: int) -> bool:
    if owner.machine == machine_id():
        return owner.surely_dead
    return host_ms() - beat_ms > GONE_MS


def _step(row: Any) -> Step:
    plan = Plan.from_row(json.loads(row.plan)) if row.plan is not None else None
    outcome = Outcome.from_row(json.loads(row.outcome)) if row.outcome is not None else None
    return Step(row.task, row.queue, row.item, row.attempt, plan, outcome)


class Recorder:
    """Writes what a run does. Thread-safe; writers that wait at the same time share one transaction."""

    def __init__(self, ledger: Ledger, record: RunRecord, secrets: Secrets | None = None) -> None:
        self._ledger, self._record, self._secrets = ledger, record, secrets or Secrets({})
        self._guard, self._turn = threading.Lock(), threading.Lock()
        self._waiting: dict[tuple[str, str, int], Step] = {}
        self._beat_ms = host_ms()
        self._fault: EmqError | None = None

    def later(self, step: Step) -> None:
        """Writes `step` with the next commit."""
        with self._guard:
            self._waiting[step.key] = step

    def now(self, *steps: Step) -> None:
        """Writes `steps` and all that waits; returns when they are kept. Raises TakenOverError, DatabaseError."""
        for step in steps:
            self.later(step)
        self._flush()

    def soon(self) -> None:
        """As `now`, unless something was written a moment ago."""
        if host_ms() - self._beat_ms >= KEEP_MS:
            self._flush()

    def beat(self) -> None:
        """Gives a sign of life if the last is old, and writes what waited long enough."""
        age = host_ms() - self._beat_ms
        if age >= BEAT_MS or (age >= KEEP_MS and self._waiting):
            self._flush(beat=True)

    def finish(self, status: str, counts: dict[str, Any], error: str | None = None) -> None:
        """Writes what waits, and how the run ended (a word of `emq_ops.ledger.runs`)."""
        self._flush(lambda connection: words.finish(connection, self._record.run, status, counts=counts, error=error))

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

    def _row(self, step: Step) -> dict[str, Any]:
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
        now = host_ms()
        ours = (play_runs.c.run == self._record.run) & (play_runs.c.claim == self._record.claim)
        done = connection.execute(update(play_runs).where(ours).values(beat_ms=now))
        if done.rowcount != 1:
            raise TakenOverError(f"run {self._record.run} was resumed by another process", fix="leave it to that one")
        self._beat_ms = now

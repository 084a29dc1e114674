"""Runs of playbooks in the state database: what was asked, who runs it, what is done.

Before a task changes anything, its plan is written; after it, its outcome. A run is resumed by whoever raises its
*claim*; an older holder finds out at its next write, which is before its next change.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from sqlalchemy import Connection, bindparam, select, update

from emq_ops.ledger import runs, schema
from emq_ops.ledger.ledger import Ledger, clock_ms, host_ms
from emq_ops.passes.lease.holder import Holder, machine_id, who
from emq_ops.playbook.decisions import Decision
from emq_ops.playbook.outcome import TaskOutcome
from emq_ops.playbook.store.schema import play_runs, play_steps
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.ids import mint, require

GONE_MS = 120_000
"""Another host's run that gave no sign for so long may be taken over."""
WHOLE = -1
"""The item number of a task as a whole."""
StepKey = tuple[str, str, int]
"""Task, queue, item: what names a step within its run."""
_DROPPED, _RESET = "~", "+"  # behind the task's key, with the claim that did it: a step of an earlier life
_TRY = "^"  # behind the task's key, with item and life: a try that changed something
_TRIED = re.compile(r"(.*)\^(-?[0-9]+)\.([0-9]+)")
_EARLIER = re.compile(r"(.*)([~+])([0-9]+)")


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One item of one task on one queue (`item` WHOLE: the task's outcome). `plan` stands once it was begun."""

    task: str
    queue: str
    item: int
    attempt: int
    plan: Decision | None
    outcome: TaskOutcome | None

    @property
    def key(self) -> StepKey:
        """What names it within its run."""
        return self.task, self.queue, self.item


@dataclass(frozen=True, slots=True)
class TryKey:
    """What names the tries of one item of one task on one queue, in one life of the task."""

    task: str
    queue: str
    item: int
    life: int

    def step(self, attempt: int, outcome: TaskOutcome) -> StepRecord:
        """A try that changed something and did not reach its end."""
        return StepRecord(f"{self.task}{_TRY}{self.item}.{self.life}", self.queue, attempt, attempt, None, outcome)


@dataclass
class PlaybookRun:
    """A run as asked: `playbook` is its absolute path, `options` what the command line said, `queues` those of each
    play (by its index, as text). Of a run that failed and was resumed: `lives`, the claim under which a task of a queue
    began anew; `changed`, tasks that had changed something and are looked at again; `tries`, by attempt, those that
    changed something and were followed by another; `earlier`, steps of tasks that began anew."""

    run: str
    playbook: str
    sha256: str
    options: dict[str, Any]
    queues: dict[str, list[str]]
    claim: int
    steps: dict[StepKey, StepRecord]
    lives: dict[tuple[str, str], int] = field(default_factory=dict)
    changed: set[tuple[str, str]] = field(default_factory=set)
    tries: dict[TryKey, dict[int, TaskOutcome]] = field(default_factory=dict)
    earlier: list[StepRecord] = field(default_factory=list)

    def removed(self) -> dict[str, int]:
        """How many jobs earlier processes of this run took away, by queue, as its steps say."""
        of_task: dict[tuple[str, str], list[int]] = {}
        for step in (*self.steps.values(), *self.earlier):
            whole_and_items = of_task.setdefault((step.task, step.queue), [0, 0])
            if step.outcome is not None:
                whole_and_items[step.item != WHOLE] += step.outcome.removed
        for key, tried in self.tries.items():
            of_task.setdefault((key.task, key.queue), [0, 0])[1] += sum(one.removed for one in tried.values())
        found: dict[str, int] = {}
        for (_, queue), (whole, items) in of_task.items():
            found[queue] = found.get(queue, 0) + max(whole, items)
        return found

    def tries_before(self, key: TryKey, attempt: int) -> list[TaskOutcome]:
        """The tries of an earlier process that changed something."""
        return [outcome for number, outcome in sorted(self.tries.get(key, {}).items()) if number < attempt]


Retry = Callable[[PlaybookRun], tuple[set[StepKey], set[StepKey]]]
"""Of a run that failed: the steps that begin anew, and those that are looked at again."""


def begin(
    ledger: Ledger, playbook: str, sha256: str, options: dict[str, Any], queues: dict[str, list[str]]
) -> PlaybookRun:
    """Records a new run and returns it."""
    record = PlaybookRun(mint("RUN"), playbook, sha256, options, queues, 1, {})
    with ledger.write() as connection:
        connection.execute(
            schema.runs.insert().values(
                id=record.run,
                kind="check" if options.get("check") else "play",
                queue="*",
                status=runs.RUNNING,
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
                beat_ms=clock_ms(connection),
            )
        )
    return record


def look(ledger: Ledger, run: str) -> PlaybookRun:
    """What was asked of a run (without its steps). Raises BadInputError for one that is not there."""
    with ledger.read() as connection:
        row, _ = _look(connection, run, ledger.where)
    return _record(run, row, [])


def claim(ledger: Ledger, run: str, retry: Retry) -> PlaybookRun:
    """Takes over a run that was interrupted, or that failed: `retry` says what of it is done again. Raises
    BadInputError for one that is not there, ended well, or is alive."""
    with ledger.write() as connection:
        row, status = _look(connection, run, ledger.where, lock=True)
        if status not in (runs.RUNNING, runs.INTERRUPTED, runs.FAILED):
            raise BadInputError(
                f"run {run} ended ({status}); only one that failed or was interrupted goes on",
                fix="start it anew; --start-at-task begins in the middle",
            )
        owner = Holder(**json.loads(row["owner"]))
        if status == runs.RUNNING and not _gone(owner, row["beat_ms"], clock_ms(connection)):
            raise BadInputError(f"run {run} is still being run by {owner}", fix="end that process, or wait for it")
        values = {"owner": _owner(), "claim": row["claim"] + 1, "beat_ms": clock_ms(connection)}
        connection.execute(update(play_runs).where(play_runs.c.run == run).values(values))
        ours = {"status": runs.RUNNING, "holder": who(), "ended_ms": None, "error": None}
        connection.execute(update(schema.runs).where(schema.runs.c.id == run).values(ours))
        record = _record(run, row, _steps(connection, run))
        record.claim += 1
        if status == runs.FAILED:
            for mark, keys in zip((_DROPPED, _RESET), retry(record), strict=True):
                _set_aside(connection, run, keys, f"{mark}{record.claim}")
            record = _record(run, {**row, "claim": record.claim}, _steps(connection, run))
    return record


def _steps(connection: Connection, run: str) -> list[StepRecord]:
    return [_step(found) for found in connection.execute(select(play_steps).where(play_steps.c.run == run))]


def _set_aside(connection: Connection, run: str, keys: Iterable[StepKey], mark: str) -> None:
    c = play_steps.c
    ours = (c.run == run) & (c.task == bindparam("of")) & (c.queue == bindparam("on")) & (c.item == bindparam("at"))
    rows = [{"of": task, "on": queue, "at": item} for task, queue, item in keys]
    if rows:
        connection.execute(update(play_steps).where(ours).values(task=c.task + mark), rows)


def _record(run: str, row: Any, steps: list[StepRecord]) -> PlaybookRun:
    options, queues = json.loads(row["options"]), json.loads(row["queues"])
    record = PlaybookRun(run, row["playbook"], row["sha256"], options, queues, int(row["claim"]), {})
    for step in steps:
        tried = _TRIED.fullmatch(step.task)
        if tried is not None and step.outcome is not None:
            key = TryKey(tried[1], step.queue, int(tried[2]), int(tried[3]))
            record.tries.setdefault(key, {})[step.item] = step.outcome
            continue
        earlier = _EARLIER.fullmatch(step.task)
        if earlier is None:
            record.steps[step.key] = step
            continue
        record.earlier.append(step)
        place = (earlier[1], step.queue)
        if earlier[2] == _DROPPED:
            record.lives[place] = max(int(earlier[3]), record.lives.get(place, 0))
        if step.outcome is not None and step.outcome.changed:
            record.changed.add(place)
    return record


def _look(connection: Connection, run: str, where: str, *, lock: bool = False) -> tuple[Any, str]:
    wanted: Any = select(*play_runs.c, schema.runs.c.status).join(schema.runs, schema.runs.c.id == play_runs.c.run)
    wanted = wanted.where(play_runs.c.run == require(run, "RUN"))
    found = connection.execute(wanted.with_for_update() if lock else wanted).mappings().first()
    if found is None:
        raise BadInputError(
            f"no run of a playbook is called {run}", where=where, fix="see `emq-ops runs ls --kind play`"
        )
    return found, str(found["status"])


def _owner() -> str:
    return json.dumps(asdict(Holder.me("play")))


def _gone(owner: Holder, beat_ms: int, now_ms: int) -> bool:
    """Whether nobody runs it any more. Both instants are of the state's own clock: a beat to come is from before that
    was set back."""
    if owner.machine == machine_id():
        return owner.surely_dead
    return abs(now_ms - beat_ms) > GONE_MS


def _step(row: Any) -> StepRecord:
    plan = Decision.from_row(json.loads(row.plan)) if row.plan is not None else None
    outcome = TaskOutcome.from_row(json.loads(row.outcome)) if row.outcome is not None else None
    return StepRecord(row.task, row.queue, row.item, row.attempt, plan, outcome)

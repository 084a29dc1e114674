"""Runs: every pass, what it did, by whom."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, select, update

from emq_ops.database.records import AsRow, Records
from emq_ops.database.statements import among, equal
from emq_ops.ledger.ledger import Ledger, host_ms
from emq_ops.ledger.schema import runs
from emq_ops.policy.words import near_names
from emq_ops.protocol.errors import BadInputError, one_line
from emq_ops.protocol.ids import mint, require

RUNNING, DONE, FAILED, STOPPED, INTERRUPTED, IDLE = "running", "done", "failed", "stopped", "interrupted", "idle"
REFUSED = "refused"
TIMES = "times"
"""In the counts of a row that stands for several runs that failed or were refused alike: how many."""
_LOOK_BACK = 20
_NUMBERS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Run(AsRow):
    """A pass as recorded. `status`: running, done, failed (`error` says why), stopped (a guard refused), interrupted
    (its process ended, or this database was away when the pass did; the next pass made it whole), refused (a hold,
    `protect` or another state's lease), idle (many passes that found nothing). Runs of a queue and pass that failed or
    were refused for one reason, one after the other, are one row: first and last instant, and how many in `counts`.
    `slices`: how many of its slices are recorded. Times are unix ms of the host."""

    id: str
    kind: str
    queue: str
    status: str
    started_ms: int
    ended_ms: int | None
    trigger: str
    holder: str
    token: int
    slices: int
    policy: dict[str, Any]
    counts: dict[str, Any]
    error: str | None = None

    def over(self, status: str, counts: dict[str, Any], error: str | None = None) -> Run:
        """The same run, ended now."""
        return replace(self, status=status, ended_ms=host_ms(), counts=counts, error=error)


NEAR_AMONG = 500
"""So many of the last runs are looked at for a mistyped id."""
ROWS = Records(runs, Run, packed=["policy", "counts"])


def new(
    kind: str,
    queue: str,
    *,
    holder: str,
    trigger: str = "command",
    token: int = 0,
    policy: dict[str, Any] | None = None,
) -> Run:
    """A run that begins now, recorded nowhere yet. `trigger`: what asked for it (command, daemon, playbook ...);
    `token`: of the lease that it runs under, 0 for none."""
    return Run(mint("RUN"), kind, queue, RUNNING, host_ms(), None, trigger, holder, token, 0, policy or {}, {}, None)


def start(ledger: Ledger, kind: str, queue: str, **more: Any) -> str:
    """Records that a pass begins, as `new` takes it; returns its run id. As `begin`."""
    run = new(kind, queue, **more)
    begin(ledger, run)
    return run.id


def begin(ledger: Ledger, run: Run) -> None:
    """Records that a run of `new` begins. Runs of this kind and queue that this lease (one at a time) or an older one
    left running are marked interrupted."""
    with ledger.write() as connection:
        if run.token:
            stale = update(runs).where(runs.c.queue == run.queue, runs.c.kind == run.kind, runs.c.status == RUNNING)
            ended = {"status": INTERRUPTED, "ended_ms": run.started_ms}
            connection.execute(stale.where(runs.c.token <= run.token).values(ended))
        connection.execute(runs.insert().values(ROWS.values(run)))


def refused(ledger: Ledger, run: Run) -> None:
    """Records a run that was not begun."""
    with ledger.write() as connection:
        connection.execute(runs.insert().values(ROWS.values(run)))
        join_repeats(connection, run.id)


def join_repeats(connection: Connection, run: str) -> None:
    """Makes `run`, which did nothing, one row with the last one of the same queue and pass that ended in the same way
    for the same reason (numbers in it apart), if none did anything in between."""
    mine = ROWS.first(connection, ROWS.select.where(runs.c.id == run))
    if mine is None or set(mine.counts) - {TIMES}:
        return
    before = ROWS.select.where(runs.c.queue == mine.queue, runs.c.kind == mine.kind, runs.c.id < run)
    for row in ROWS.all(connection, before.order_by(runs.c.id.desc()).limit(_LOOK_BACK)):
        if row.status not in (FAILED, REFUSED) or set(row.counts) - {TIMES}:
            return
        if row.status == mine.status and _alike(row.error, mine.error):
            counts = json.dumps({TIMES: row.counts.get(TIMES, 1) + 1})
            values = {"started_ms": row.started_ms, "counts": counts}
            connection.execute(update(runs).where(runs.c.id == run).values(values))
            connection.execute(runs.delete().where(runs.c.id == row.id))
            return


def _alike(one: str | None, other: str | None) -> bool:
    return _NUMBERS.sub("#", one or "") == _NUMBERS.sub("#", other or "")


def plan(connection: Connection, run: Run, why: str) -> None:
    """Records a run that is planned and not begun: whoever resumes it begins it."""
    planned = replace(run, status=INTERRUPTED, ended_ms=host_ms(), error=why)
    connection.execute(runs.insert().values(ROWS.values(planned)))


def renew(ledger: Ledger, run: str, token: int) -> None:
    """A run goes on under another lease."""
    with ledger.write() as connection:
        values = {"token": token, "status": RUNNING, "ended_ms": None}
        connection.execute(update(runs).where(runs.c.id == run).values(values))


def discard(ledger: Ledger, run: str) -> None:
    """Takes back the row of a run that turned out to have nothing to do."""
    with ledger.write() as connection:
        connection.execute(runs.delete().where(runs.c.id == run))


def finish(
    connection: Connection, run: str, status: str, *, counts: dict[str, Any] | None = None, error: str | None = None
) -> None:
    """Records how a pass ended. `counts` None leaves those that its slices added up; otherwise none of those gets less:
    the reply to the last slice's commit may have been lost."""
    values: dict[str, Any] = {"status": status, "ended_ms": host_ms(), "error": error}
    if counts is not None:
        values["counts"] = json.dumps(merged(connection, run, counts))
    connection.execute(update(runs).where(runs.c.id == run).values(values))


def merged(connection: Connection, run: str, counts: Mapping[str, Any]) -> dict[str, Any]:
    """`counts`, and the numbers of the run's row that are higher: all that anybody could record of it."""
    row = connection.execute(select(runs.c.counts).where(runs.c.id == run).with_for_update()).first()
    known = json.loads(row.counts) if row is not None else {}
    more = {name: n for name, n in known.items() if isinstance(n, int) and n > (counts.get(name) or 0)}
    return {**counts, **more}


def add_slice(connection: Connection, run: str, number: int, counts: dict[str, int]) -> bool:
    """Adds the counts of slice `number` (from 1) to a run; False where that slice is recorded already."""
    row = connection.execute(select(runs.c.slices, runs.c.counts).where(runs.c.id == run).with_for_update()).first()
    if row is None or row.slices >= number:
        return False
    total = json.loads(row.counts)
    for name, count in counts.items():
        total[name] = total.get(name, 0) + count
    connection.execute(update(runs).where(runs.c.id == run).values(slices=number, counts=json.dumps(total)))
    return True


def save_counts(connection: Connection, run: str, counts: Mapping[str, int], **more: Any) -> None:
    """Notes how far a run is, in place of what was noted before. `more`: other columns."""
    connection.execute(update(runs).where(runs.c.id == run).values(counts=json.dumps(dict(counts)), **more))


def resume(ledger: Ledger, run: Run) -> None:
    """Another process (the holder and policy of `run`) goes on with a run that did not end."""
    again = ROWS.values(replace(run, status=RUNNING, ended_ms=None, error=None))
    changed = {name: again[name] for name in ("status", "holder", "policy", "ended_ms", "error")}
    with ledger.write() as connection:
        connection.execute(update(runs).where(runs.c.id == run.id).values(changed))


def at_least(connection: Connection, run: str, name: str, count: int) -> None:
    """Sets one count of a run where it says less: its end could not be recorded, or a reply was lost."""
    row = connection.execute(select(runs.c.counts).where(runs.c.id == run).with_for_update()).first()
    counts = json.loads(row.counts) if row is not None else {}
    if row is not None and counts.get(name, 0) < count:
        connection.execute(update(runs).where(runs.c.id == run).values(counts=json.dumps({**counts, name: count})))


def may_run(connection: Connection, run: str, token: int) -> bool:
    """Whether a run was begun under the lease of this token, or a later one, and its end is not recorded."""
    wanted = select(runs.c.id).where(runs.c.id == run, runs.c.status == RUNNING, runs.c.token >= token)
    return connection.execute(wanted).first() is not None


def adopt(connection: Connection, run: str, kind: str, queue: str) -> None:
    """Makes a row for a run that this database never heard of (its own was lost), so that its slices have a place."""
    known = connection.execute(select(runs.c.id).where(runs.c.id == run)).first()
    if known is None:
        lost = replace(new(kind, queue, holder="unknown", trigger="unknown"), id=run, status=INTERRUPTED)
        connection.execute(runs.insert().values(ROWS.values(lost)))


def get(ledger: Ledger, run: str) -> Run:
    """The run of that id; raises BadInputError, with the nearest of the last ones, where there is none."""
    found, what = None, f"no run {one_line(run[:80])}"
    try:
        found = find(ledger, require(run, "RUN"))
    except BadInputError as malformed:
        what = malformed.what
    if found is None:
        raise BadInputError(what, where=ledger.where, fix=near(ledger, run) or "see `emq-ops runs ls`")
    return found


def near(ledger: Ledger, run: str) -> str:
    """A hint: those of the last runs whose ids are like this one; empty where none is."""
    with ledger.read() as connection:
        last = connection.execute(select(runs.c.id).order_by(runs.c.id.desc()).limit(NEAR_AMONG)).scalars()
        return near_names(run, last)


def find(ledger: Ledger, run: str) -> Run | None:
    """The run of that id, None where retention let it go or there never was one."""
    with ledger.read() as connection:
        return ROWS.first(connection, ROWS.select.where(runs.c.id == run))


def queues_with_runs(ledger: Ledger) -> set[str]:
    """Every queue that a run was on."""
    with ledger.read() as connection:
        return {row.queue for row in connection.execute(select(runs.c.queue).distinct())} - {"*"}


def latest(
    ledger: Ledger,
    *,
    queue: str | None = None,
    queues: Sequence[str] = (),
    kind: str | None = None,
    limit: int = 100,
    idle: bool = True,
) -> list[Run]:
    """The newest runs first, of one queue, of several, or of all; without `idle` none of the rows that only count
    passes which found nothing."""
    wanted = equal(ROWS.select, runs, queue=queue, kind=kind).order_by(runs.c.id.desc()).limit(limit)
    if kind is None and not idle:
        wanted = wanted.where(runs.c.kind != "idle")
    with ledger.read() as connection:
        if queues:
            wanted = wanted.where(among(connection, runs.c.queue, queues))
        return ROWS.all(connection, wanted)

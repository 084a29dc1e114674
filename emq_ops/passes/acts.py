"""Acting on selected dead jobs: requeue them, or take them away; at a bounded rate, recorded, resumable, undoable.

What is meant is noted in the ledger before anything is touched. Each slice is one script, which looks again at every
job and leaves alone whoever changed; what it did stays on the server until the ledger has it, so a kill anywhere loses
nothing and does nothing twice.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sqlalchemy import update

from emq_ops.database.statements import pages
from emq_ops.ledger import acts, deaths, runs
from emq_ops.ledger.ledger import Ledger, host_ms
from emq_ops.ledger.schema import runs as runs_table
from emq_ops.ledger.whole import Whole
from emq_ops.passes.deadset import DeadJob
from emq_ops.passes.events import Emit, PassEnded, PassStarted, nowhere
from emq_ops.passes.lease.holder import Holder, who
from emq_ops.passes.lease.queue_lease import ForeignQueueError, lease_info
from emq_ops.passes.observe.reconcile import PAGE, learn
from emq_ops.passes.report import NAMED, Skipped, name_some
from emq_ops.passes.selection import Selection, nothing, select
from emq_ops.passes.trim.dead_trim import ProtectedError
from emq_ops.protocol.errors import BadInputError, EmqError, OutcomeUnknownError
from emq_ops.protocol.keyspace import Keys, keys_of
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Arg, Server

KINDS = (acts.REQUEUE, acts.REMOVE)
RATE = 500
"""Jobs a second unless said otherwise."""
SLICE = 100
_READ_BUDGET = 4 * 1024 * 1024
_TRIES = 5
WHY_LEFT = {
    "alive": "not dead any more",
    "changed": "died again since it was selected",
    "held": "a worker's lock stands on it",
    "child": "flow child: its parent would wait for ever",
    "parent": "flow parent: its children still report to it",
    "damaged": "its row can't be read; see `emq-ops doctor`",
    "gone": "there is no row any more",
    "exists": "a job of that id lives",
    "lost": "it was kept nowhere",
    "withdrawn": "never touched: the act was undone",
}


@dataclass(slots=True)
class Chosen:
    """What a selection took on one queue, before anything is done. `jobs`: (id, attempts, stalls); `last_attempt`: how
    many died of an error: their next error kills them again, since attempts stay; `stay`: those that a removal leaves
    alone, as far as it was seen (job -> one of WHY_LEFT)."""

    queue: str
    jobs: list[tuple[str, int, int]] = field(default_factory=list)
    last_attempt: int = 0
    damaged: int = 0
    causes: Counter[str] = field(default_factory=Counter)
    stay: dict[str, str] = field(default_factory=dict)

    def add(self, job: DeadJob) -> None:
        """One more; a job whose row can't be read is counted, and left alone."""
        if job.damaged:
            self.damaged += 1
            return
        self.jobs.append((job.job, job.attempts, job.stalls))
        self.causes[job.cause] += 1
        self.last_attempt += job.cause == "error"
        if job.held or job.parent:
            self.stay[job.job] = "held" if job.held else "child"


@dataclass(slots=True)
class ActReport:
    """An act, or an undo. `selected` jobs; `done` of them; `left`: how many of the others, by reason (WHY_LEFT);
    `done_jobs`, `left_jobs`: the first of each by name. `status`: dry, done."""

    kind: str
    queue: str
    run: str | None = None
    status: str = "done"
    selected: int = 0
    done: int = 0
    last_attempt: int = 0
    left: dict[str, int] = field(default_factory=dict)
    done_jobs: list[str] = field(default_factory=list)
    left_jobs: list[Skipped] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def as_row(self) -> dict[str, Any]:
        """As a plain dict, for renderers."""
        return asdict(self)

    def add(self, codes: Mapping[str, str]) -> None:
        """Adds what became of some jobs."""
        name_some(self.done_jobs, [job for job, code in codes.items() if code == acts.DONE])
        self.done += sum(code == acts.DONE for code in codes.values())
        for job, code in codes.items():
            if code != acts.DONE:
                self.left[code] = self.left.get(code, 0) + 1
                if len(self.left_jobs) < NAMED:
                    self.left_jobs.append(Skipped(job, WHY_LEFT.get(code, code)))


def choose(server: Server, queue: str, selection: Selection, ledger: Ledger | None = None) -> Chosen:
    """What `selection` takes now; changes nothing. Raises EmptySelectionError where that is nothing."""
    chosen = Chosen(queue)
    for job in select(server, queue, selection, ledger):
        chosen.add(job)
    if not chosen.jobs:
        raise nothing([queue], selection)
    return chosen


def preview(kind: str, chosen: Chosen) -> ActReport:
    """The report of a dry run."""
    report = ActReport(kind, chosen.queue, status="dry", selected=len(chosen.jobs), last_attempt=chosen.last_attempt)
    stay = chosen.stay if kind == acts.REMOVE else {}
    report.add(dict(sorted(stay.items())))
    name_some(report.done_jobs, [job for job, _, _ in chosen.jobs if job not in stay])
    _warn(report, chosen)
    return report


def act(
    server: Server,
    kind: str,
    chosen: Chosen,
    ledger: Ledger,
    *,
    why: str = "",
    meant: Mapping[str, Any] | None = None,
    rate: int = RATE,
    slice_size: int = SLICE,
    protect: bool = False,
    trigger: str = "command",
    emit: Emit = nowhere,
    sleep: Callable[[float], None] = time.sleep,
) -> ActReport:
    """Requeues (`acts.REQUEUE`) or takes away (`acts.REMOVE`) exactly the jobs of `chosen` that are still as they were,
    at most `rate` a second. `why` and `meant` (the filters) are recorded with who did it. A run that ends early is
    resumed by `resume`. `sleep` waits between slices; whatever it raises ends the run early.

    Raises BadInputError (kind, rate, nothing chosen), ProtectedError (`protect`, and it would remove),
    ForeignQueueError, and what the server and the ledger raise.
    """
    _check(kind, rate, chosen)
    check_protect(kind, chosen.queue, protect)
    check_owner(server, chosen.queue, ledger)
    policy = {"why": why, "selection": dict(meant or {}), "rate": rate, "slice": slice_size, "process": process()}
    run = runs.start(ledger, kind, chosen.queue, holder=who(), trigger=trigger, policy=policy)
    _record_deaths(server, ledger, chosen, run, emit)
    for page in pages(chosen.jobs, 2000):
        with ledger.write() as connection:
            acts.plan(connection, run, page, host_ms())
    with ledger.write() as connection:
        connection.execute(
            update(runs_table)
            .where(runs_table.c.id == run)
            .values(counts=json.dumps({"selected": len(chosen.jobs)}), slices=1)
        )
    emit(PassStarted(chosen.queue, run, kind=kind))
    report = ActReport(kind, chosen.queue, run, selected=len(chosen.jobs), last_attempt=chosen.last_attempt)
    _warn(report, chosen)
    return _carry_out(server, ledger, report, Pace(rate, slice_size, sleep), emit)


def _record_deaths(server: Server, ledger: Ledger, chosen: Chosen, run: str, emit: Emit) -> None:
    """Deaths that no pass recorded: once they are acted upon, nobody else will see them."""
    keys, now_ms = keys_of(chosen.queue), server.now_ms(chosen.queue)
    for page in pages([job for job, _, _ in chosen.jobs], PAGE):
        learn(server, ledger, keys, page, run, now_ms, emit)


def resume(
    server: Server,
    run: str,
    ledger: Ledger,
    *,
    rate: int | None = None,
    protect: bool = False,
    emit: Emit = nowhere,
    sleep: Callable[[float], None] = time.sleep,
) -> ActReport:
    """Goes on with an act that was killed or failed, from where it stood. Raises BadInputError: it is no act, it is
    over, or the process that runs it still lives; ProtectedError as `act`."""
    found = unended(ledger, run)
    check_protect(found.kind, found.queue, protect)
    if not found.slices:
        with ledger.write() as connection:
            runs.finish(connection, run, runs.FAILED, error="killed while it was planned; nothing was touched")
        raise BadInputError(f"run {run} was killed while it was planned; nothing was touched", fix="start it anew")
    check_owner(server, found.queue, ledger)
    take_over(ledger, found)
    report = ActReport(found.kind, found.queue, run, selected=int(found.counts.get("selected", 0)))
    pace = Pace(rate or int(found.policy.get("rate", RATE)), int(found.policy.get("slice", SLICE)), sleep)
    return _carry_out(server, ledger, report, pace, emit)


def unended(ledger: Ledger, run: str) -> runs.Run:
    """An act that can be resumed. Raises BadInputError: it is no act, it is over, or its process may still live."""
    found = runs.get(ledger, run)
    if found.kind not in KINDS:
        raise BadInputError(f"run {run} is a {found.kind}, not an act", fix="see `emq-ops runs ls`")
    if found.status == runs.DONE:
        raise BadInputError(f"run {run} is done", fix="there is nothing to resume")
    check_dead(found)
    return found


def check_protect(kind: str, queue: str, protect: bool) -> None:
    """Raises ProtectedError where jobs of a protected queue would go."""
    if protect and kind == acts.REMOVE:
        raise ProtectedError("protected: nothing is removed from it", where=queue, fix="set protect: false first")


def check_owner(server: Server, queue: str, ledger: Ledger) -> None:
    """Raises ForeignQueueError where another state owns the queue: its ledger would not know what we do."""
    found = lease_info(server, queue)
    if found is not None and found.state and found.state != ledger.state:
        raise ForeignQueueError(queue, ledger.state, found.state, found.holder)


def check_dead(found: runs.Run) -> None:
    """Raises BadInputError where the process of a run that is not over may still live."""
    process = found.policy.get("process")
    if found.status == runs.RUNNING and isinstance(process, dict) and not Holder(**process).surely_dead:
        raise BadInputError(
            f"run {found.id} is still running, by {found.holder}", fix="wait for it, or end that process"
        )


def take_over(ledger: Ledger, found: runs.Run) -> None:
    """This process goes on with the run."""
    policy = json.dumps({**found.policy, "process": process()})
    values = {"status": runs.RUNNING, "holder": who(), "policy": policy, "ended_ms": None, "error": None}
    with ledger.write() as connection:
        connection.execute(update(runs_table).where(runs_table.c.id == found.id).values(values))


def process() -> dict[str, Any]:
    """This process, as a run's policy names it, so that another can tell whether it lives."""
    return asdict(Holder.me("command"))


def _check(kind: str, rate: int, chosen: Chosen) -> None:
    if kind not in KINDS:
        raise BadInputError(f"no act is called '{kind}'", fix=f"one of {', '.join(KINDS)}")
    if rate < 1:
        raise BadInputError(f"rate is {rate}", fix="give jobs a second, 1 or more")
    if not chosen.jobs:
        raise nothing([chosen.queue], Selection())


def _warn(report: ActReport, chosen: Chosen) -> None:
    if report.kind == acts.REQUEUE and chosen.last_attempt:
        report.notes.append(
            f"{chosen.last_attempt} died of an error and keep their attempts: their next error kills them again"
        )
    if chosen.damaged:
        report.notes.append(f"{chosen.damaged} have no readable row and are left alone; see `emq-ops doctor`")


class Pace:
    """Lets through at most `rate` jobs a second, in slices."""

    def __init__(self, rate: int, most: int = SLICE, sleep: Callable[[float], None] = time.sleep) -> None:
        self.rate, self._sleep = rate, sleep
        self.slice = max(1, min(most, rate // 4))
        self._next = time.monotonic()

    def wait(self, jobs: int) -> None:
        """Waits until the jobs that went through before are paid for, then takes `jobs` more."""
        now = time.monotonic()
        if self._next > now:
            self._sleep(self._next - now)
        self._next = max(self._next, now) + jobs / self.rate


def _carry_out(server: Server, ledger: Ledger, report: ActReport, pace: Pace, emit: Emit) -> ActReport:
    run = report.run or ""
    with accounted(ledger, report, emit):
        _add_earlier(server, ledger, report, run)
        _slices(server, ledger, report, run, pace)
    return report


@contextlib.contextmanager
def accounted(ledger: Ledger, report: ActReport, emit: Emit) -> Iterator[None]:
    """What is done inside ends `report`'s run: done with its counts, or interrupted by the EmqError that leaves."""
    run = report.run or ""
    try:
        yield
    except EmqError as fault:
        with ledger.write() as connection:
            runs.finish(connection, run, runs.INTERRUPTED, error=str(fault))
        emit(PassEnded(report.queue, run, kind=report.kind, status=runs.INTERRUPTED, error=str(fault)))
        raise
    counts = {"selected": report.selected, acts.DONE: report.done, **report.left}
    with ledger.write() as connection:
        runs.finish(connection, run, runs.DONE, counts=counts)
    emit(PassEnded(report.queue, run, kind=report.kind, status=runs.DONE, counts=counts))


def _add_earlier(server: Server, ledger: Ledger, report: ActReport, run: str) -> None:
    """What was done before the run was killed, its last slice included."""
    settle_acted(server, ledger, report.kind, report.queue, run)
    with ledger.read() as connection:
        before = acts.totals(connection, run)
    before.pop(acts.PLANNED, None)
    report.done, report.left = before.pop(acts.DONE, 0), before
    if report.done:
        report.notes.append(f"{report.done} were done before")


def _slices(server: Server, ledger: Ledger, report: ActReport, run: str, pace: Pace) -> None:
    keys, tries = keys_of(report.queue), 0
    while True:
        with ledger.read() as connection:
            items = acts.planned(connection, run, pace.slice)
        if not items:
            return
        pace.wait(len(items))
        try:
            _send(server, report.kind, keys, run, items)
        except OutcomeUnknownError:
            # Whether it was done is known by what it left on the server.
            tries += 1
            if tries >= _TRIES:
                raise
        report.add(settle_acted(server, ledger, report.kind, report.queue, run))


def _send(server: Server, kind: str, keys: Keys, run: str, items: Sequence[acts.Item]) -> None:
    facts: list[Arg] = [value for item in items for value in (item.job, item.attempts, item.stalls)]
    if kind == acts.REQUEUE:
        server.run(load("act_requeue"), [keys.acted(run), keys.dead, keys.exempt], [keys.base, *facts])
    else:
        server.run(load("act_remove"), [keys.acted(run), keys.dead], [keys.base, keys.grave(run), *facts])


def settle_acted(server: Server, ledger: Ledger, kind: str, queue: str, run: str) -> dict[str, str]:
    """Puts what the last slice did into the ledger, and lets the server forget it; answers job -> code. Harmless to
    repeat."""
    keys = keys_of(queue)
    flat = [value.decode("ascii", "replace") for value in server.read("LRANGE", keys.acted(run), 0, -1)]
    codes = dict(zip(flat[::2], flat[1::2], strict=True))
    if not codes:
        return {}
    done = [job for job, code in codes.items() if code == acts.DONE]
    wholes = read_graves(server, keys, run, done) if kind == acts.REMOVE else {}
    now = server.now_ms(queue)
    how = deaths.REMOVED if kind == acts.REMOVE else deaths.REVIVED
    with ledger.write() as connection:
        acts.settle(connection, run, codes, host_ms(), wholes)
        deaths.close(connection, queue, done, how, now, by=run)
    if kind == acts.REMOVE:
        bury(server, keys, run, done)
    server.write("UNLINK", keys.acted(run))
    return codes


def read_graves(server: Server, keys: Keys, run: str, jobs: Sequence[str]) -> dict[str, Whole]:
    """The jobs that `run` laid aside, whole, in bounded replies."""
    out: dict[str, Whole] = {}
    todo = list(jobs)
    while todo:
        args: list[Arg] = [keys.grave(run), _READ_BUDGET, *todo]
        replies = server.run(load("act_read"), [keys.acted(run)], args, readonly=True)
        for job, (row, logs, dependencies, *books) in zip(todo, replies, strict=False):
            if row:
                out[job] = Whole(tuple(row), tuple(logs), dependencies, tuple(tuple(book) for book in books))
        todo = todo[len(replies) :]
    return out


def bury(server: Server, keys: Keys, run: str, jobs: Iterable[str]) -> None:
    """Lets go of jobs that `run` laid aside and the ledger has."""
    for page in pages(list(jobs), 100):
        server.write("UNLINK", *[key for job in page for key in keys.graves(run, job)])

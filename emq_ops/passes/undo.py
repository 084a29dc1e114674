"""Bringing removed jobs back, whole: those of a run (an act, or a trim), or named ones.

They come back dead, byte for byte as they were taken away (by a trim without an archive: row and logs as they were when
it was first seen dead); locks and deduplication keys are not brought back. Where they are kept: with the act that took
them, with their death in the ledger, in the archive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from sqlalchemy import Connection, func, select

from emq_ops.ledger import acts, deaths, runs
from emq_ops.ledger.ledger import Ledger, host_ms
from emq_ops.ledger.runs import Run
from emq_ops.ledger.schema import deaths as deaths_table
from emq_ops.ledger.schema import snapshots
from emq_ops.ledger.snapshot import unpack_whole
from emq_ops.ledger.whole import Whole
from emq_ops.passes.acts import (
    RATE,
    SLICE,
    ActReport,
    Pace,
    accounted,
    check_dead,
    check_owner,
    process,
    settle_acted,
    take_over,
)
from emq_ops.passes.events import Emit, PassStarted, nowhere
from emq_ops.passes.lease.holder import who
from emq_ops.passes.report import name_some
from emq_ops.protocol.errors import BadInputError, EmqError, OutcomeUnknownError
from emq_ops.protocol.ids import job_id
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Arg, Server
from emq_ops.protocol.transitions import jobs as transitions

TRIM = "trim"
FindArchived = Callable[[str, str], Whole | None]
"""(queue, job) -> the job as the archive has it last, or None."""
_TRIES = 5
_LOOK_BACK = 1000


def undo(
    server: Server,
    run: str,
    ledger: Ledger,
    *,
    find: FindArchived | None = None,
    rate: int = RATE,
    slice_size: int = SLICE,
    why: str = "",
    trigger: str = "command",
    emit: Emit = nowhere,
) -> ActReport:
    """Brings back every job that `run` removed and nobody brought back yet. Asked again after a kill, it goes on.

    `find` looks in the archive for jobs that the ledger does not hold any more. Raises BadInputError (the run removed
    nothing, or still runs), ForeignQueueError, and what the server and the ledger raise.
    """
    found = runs.get(ledger, run)
    if found.kind not in (acts.REMOVE, TRIM):
        raise BadInputError(f"run {run} is a {found.kind}: it removed nothing", fix="see `emq-ops runs ls`")
    check_dead(found)
    check_owner(server, found.queue, ledger)
    if found.kind == acts.REMOVE and found.status != runs.DONE:
        _end(server, ledger, found)
    source = _OfAct(ledger, found) if found.kind == acts.REMOVE else _OfTrim(ledger, found, find)
    report = ActReport(acts.UNDO, found.queue, _begin(ledger, found, why, trigger))
    if found.kind == TRIM:
        report.notes.append("the next trim takes them again, unless its policy keeps them by then")
    return _bring_back(server, ledger, report, source, Pace(rate, slice_size), emit)


def count_removed(ledger: Ledger, removal: Run) -> int:
    """How many jobs of a run an undo would bring back, if none of them lives. Raises BadInputError."""
    if removal.kind == acts.REMOVE:
        return sum(1 for _ in acts.removed(ledger, removal.id))
    if removal.kind != TRIM:
        raise BadInputError(f"run {removal.id} is a {removal.kind}: it removed nothing", fix="see `emq-ops runs ls`")
    wanted = select(func.count()).select_from(deaths_table).where(deaths_table.c.gone_by == removal.id)
    with ledger.read() as connection:
        return int(connection.execute(wanted).scalar_one())


def rehydrate(
    server: Server,
    queue: str,
    jobs: Sequence[str],
    ledger: Ledger,
    *,
    find: FindArchived | None = None,
    requeue: bool = False,
    rate: int = RATE,
    slice_size: int = SLICE,
    why: str = "",
    trigger: str = "command",
    emit: Emit = nowhere,
) -> ActReport:
    """Brings back named jobs as they were when they were last removed; with `requeue` they wait again (attempts stay,
    the stall count goes). Raises BadInputError (no ids, malformed ones), ForeignQueueError, and what the server and the
    ledger raise. A job that is kept nowhere, or that lives, is ``left``."""
    wanted = sorted({job_id(job) for job in jobs})
    if not wanted:
        raise BadInputError("no job is named", fix="give job ids")
    check_owner(server, queue, ledger)
    policy = {"why": why, "jobs": wanted[:_LOOK_BACK], "requeue": requeue, "process": process()}
    run = runs.start(ledger, acts.REHYDRATE, queue, holder=who(), trigger=trigger, policy=policy)
    report = ActReport(acts.REHYDRATE, queue, run)
    source = _Named(ledger, queue, wanted, find, server, requeue)
    return _bring_back(server, ledger, report, source, Pace(rate, slice_size), emit)


def would_rehydrate(
    server: Server, queue: str, jobs: Sequence[str], ledger: Ledger, *, find: FindArchived | None = None
) -> ActReport:
    """What `rehydrate` would do, as a dry run. Raises as it does."""
    wanted = sorted({job_id(job) for job in jobs})
    check_owner(server, queue, ledger)
    report, keys = ActReport(acts.REHYDRATE, queue, status="dry", selected=len(wanted)), keys_of(queue)
    for page in _Named(ledger, queue, wanted, find, server, requeue=False).pages(SLICE):
        lives = server.read_many([("EXISTS", keys.row(job)) for job in page])
        codes = {
            job: "lost" if whole is None else "exists" if there else acts.DONE
            for (job, whole), there in zip(page.items(), lives, strict=True)
        }
        name_some(report.done_jobs, [job for job, code in codes.items() if code == acts.DONE])
        report.add({job: code for job, code in codes.items() if code != acts.DONE})
    return report


class _Source(Protocol):
    """Jobs to bring back, in pages, and what is noted once they are back."""

    def pages(self, size: int) -> Iterator[dict[str, Whole | None]]: ...

    def back(self, connection: Connection, jobs: Sequence[str], by: str) -> None: ...

    def after(self, jobs: Sequence[str]) -> None: ...


class _OfAct:
    """What an act took away."""

    def __init__(self, ledger: Ledger, removal: Run) -> None:
        self.ledger, self.removal = ledger, removal

    def pages(self, size: int) -> Iterator[dict[str, Whole | None]]:
        page: dict[str, Whole | None] = {}
        for item, whole in acts.removed(self.ledger, self.removal.id, page=size):
            page[item.job] = whole
            if len(page) == size:
                yield page
                page = {}
        if page:
            yield page

    def back(self, connection: Connection, jobs: Sequence[str], by: str) -> None:
        acts.mark_undone(connection, self.removal.id, jobs, by)
        deaths.reopen(connection, self.removal.queue, jobs, self.removal.id)

    def after(self, jobs: Sequence[str]) -> None:
        pass


class _OfTrim:
    """What a trim removed, as the ledger has each death, or the archive."""

    def __init__(self, ledger: Ledger, trim: Run, find: FindArchived | None) -> None:
        self.ledger, self.trim, self.find = ledger, trim, find

    def pages(self, size: int) -> Iterator[dict[str, Whole | None]]:
        d, last = deaths_table, 0
        wanted = (
            select(d.c.id, d.c.job, snapshots.c.body)
            .outerjoin(snapshots, snapshots.c.death == d.c.id)
            .where(d.c.gone_by == self.trim.id)
            .order_by(d.c.id)
            .limit(size)
        )
        while True:
            with self.ledger.read() as connection:
                rows = connection.execute(wanted.where(d.c.id > last)).all()
            if not rows:
                return
            yield {row.job: self._whole(row.job, row.body) for row in rows}
            last = rows[-1].id

    def _whole(self, job: str, snapshot: bytes | None) -> Whole | None:
        if snapshot is not None:
            return unpack_whole(snapshot)
        return self.find(self.trim.queue, job) if self.find is not None else None

    def back(self, connection: Connection, jobs: Sequence[str], by: str) -> None:
        deaths.reopen(connection, self.trim.queue, jobs, self.trim.id)

    def after(self, jobs: Sequence[str]) -> None:
        pass


class _Named:
    """Jobs by their ids, each from the place that has it newest: attempts never go back."""

    def __init__(
        self, ledger: Ledger, queue: str, jobs: Sequence[str], find: FindArchived | None, server: Server, requeue: bool
    ) -> None:
        self.ledger, self.queue, self.jobs, self.find = ledger, queue, jobs, find
        self.server, self.requeue = server, requeue

    def pages(self, size: int) -> Iterator[dict[str, Whole | None]]:
        for first in range(0, len(self.jobs), size):
            yield {job: self._whole(job) for job in self.jobs[first : first + size]}

    def _whole(self, job: str) -> Whole | None:
        kept = [acts.last_whole(self.ledger, self.queue, job)]
        kept += [
            unpack_whole(death.snapshot)
            for death in deaths.iterate(self.ledger, queue=self.queue, job=job)
            if death.snapshot is not None
        ]
        if self.find is not None and not any(kept):
            kept.append(self.find(self.queue, job))
        return max((whole for whole in kept if whole is not None), key=_attempts, default=None)

    def back(self, connection: Connection, jobs: Sequence[str], by: str) -> None:
        if not self.requeue:
            deaths.reopen(connection, self.queue, jobs)

    def after(self, jobs: Sequence[str]) -> None:
        for job in jobs if self.requeue else ():
            transitions.requeue(Queue(self.server, self.queue), job)


def _attempts(whole: Whole) -> int:
    text = whole.get(b"attempts") or b""
    return int(text) if text.isdigit() and len(text) < 19 else -1


def _end(server: Server, ledger: Ledger, removal: Run) -> None:
    """Ends a removal that was killed: what it did last is recorded; what it did not do, it never will."""
    settle_acted(server, ledger, acts.REMOVE, removal.queue, removal.id)
    with ledger.write() as connection:
        acts.withdraw(connection, removal.id, host_ms())
        runs.finish(connection, removal.id, runs.STOPPED, error="undone before it was over")


def _begin(ledger: Ledger, removal: Run, why: str, trigger: str) -> str:
    """The run of this undo: the one that was killed before its end, else a new one."""
    for earlier in runs.latest(ledger, queue=removal.queue, kind=acts.UNDO, limit=_LOOK_BACK):
        if earlier.policy.get("undoes") == removal.id and earlier.status in (runs.RUNNING, runs.INTERRUPTED):
            check_dead(earlier)
            take_over(ledger, earlier)
            return earlier.id
    policy = {"undoes": removal.id, "why": why, "process": process()}
    return runs.start(ledger, acts.UNDO, removal.queue, holder=who(), trigger=trigger, policy=policy)


def _bring_back(
    server: Server, ledger: Ledger, report: ActReport, source: _Source, pace: Pace, emit: Emit
) -> ActReport:
    run = report.run or ""
    emit(PassStarted(report.queue, run, kind=report.kind))
    with accounted(ledger, report, emit):
        before = _settle(server, ledger, source, report.queue, run)
        report.selected += len(before)
        _note(report, before)
        for page in source.pages(pace.slice):
            report.selected += len(page)
            pace.wait(len(page))
            _note(report, dict.fromkeys((job for job, whole in page.items() if whole is None), "lost"))
            kept = {job: whole for job, whole in page.items() if whole is not None}
            codes = _send(server, ledger, source, report.queue, run, kept)
            _note(report, codes)
            source.after([job for job, code in codes.items() if code == acts.DONE])
    return report


def _note(report: ActReport, codes: Mapping[str, str]) -> None:
    if codes:
        report.add(codes)


def _send(
    server: Server, ledger: Ledger, source: _Source, queue: str, run: str, wanted: Mapping[str, Whole]
) -> dict[str, str]:
    keys, script = keys_of(queue), load("act_restore")
    codes: dict[str, str] = {}
    for _ in range(_TRIES):
        calls: list[tuple[list[str], list[Arg]]] = [
            ([keys.acted(run), keys.dead, keys.row(job)], [keys.base, job, *_texts(whole)])
            for job, whole in wanted.items()
            if job not in codes
        ]
        if not calls:
            break
        replies = server.run_many(script, calls)
        codes |= _settle(server, ledger, source, queue, run)
        faults = [reply for reply in replies if isinstance(reply, EmqError)]
        hard = [fault for fault in faults if not isinstance(fault, OutcomeUnknownError)]
        if hard:
            raise hard[0]
    return codes


def _texts(whole: Whole) -> list[Arg]:
    dependencies = [] if whole.dependencies is None else [whole.dependencies]
    parts = [whole.row, whole.logs, dependencies, *whole.books]
    return [*(len(part) for part in parts), *(text for part in parts for text in part)]


def _settle(server: Server, ledger: Ledger, source: _Source, queue: str, run: str) -> dict[str, str]:
    """Puts what was brought back into the ledger, and lets the server forget it; answers job -> code."""
    keys = keys_of(queue)
    flat = [value.decode("ascii", "replace") for value in server.read("LRANGE", keys.acted(run), 0, -1)]
    codes: dict[str, str] = {}
    for job, code in zip(flat[::2], flat[1::2], strict=True):
        codes.setdefault(job, code)  # sent twice, the second time it existed
    if codes:
        with ledger.write() as connection:
            source.back(connection, [job for job, code in codes.items() if code == acts.DONE], run)
        server.write("UNLINK", keys.acted(run))
    return codes

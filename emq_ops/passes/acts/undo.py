"""Bringing removed jobs back, whole: those of a run (an act, or a trim), or named ones.

They come back dead, byte for byte as they were taken away (by a trim without an archive: row and logs as they were when
it was first seen dead); locks and deduplication keys are not brought back.
"""

from __future__ import annotations

from collections.abc import Sequence

from emq_ops.ledger import acts, deaths, runs
from emq_ops.ledger.ledger import Ledger, host_ms
from emq_ops.ledger.runs import Run
from emq_ops.passes.acts.lives import check_dead, start, take_over
from emq_ops.passes.acts.options import SLICE, ActOptions
from emq_ops.passes.acts.report import ActReport
from emq_ops.passes.acts.restore import Restoration, why_lost
from emq_ops.passes.acts.slices import settle_acted
from emq_ops.passes.acts.sources import FindArchived, NamedJobs, RemovedByAct, RemovedByTrim
from emq_ops.passes.lease.owner import check_owner
from emq_ops.passes.report import name_some
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.ids import job_id
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions.jobs import requeue

TRIM = "trim"
_LOOK_BACK = 1000
_DEFAULTS = ActOptions()


def undo_run(
    server: Server, run: str, ledger: Ledger, *, find: FindArchived | None = None, options: ActOptions = _DEFAULTS
) -> ActReport:
    """Brings back every job that `run` removed and nobody brought back yet. Asked again after a kill, it goes on.

    `find` looks in the archive for jobs that the ledger does not hold any more. Raises BadInputError (the run removed
    nothing, or still runs), ForeignQueueError, and what the server and the ledger raise.
    """
    removal = _removal(ledger, run)
    check_dead(removal)
    check_owner(server, removal.queue, ledger)
    if removal.kind == acts.REMOVE and removal.status != runs.DONE:
        _end(server, ledger, removal)
    source = RemovedByAct(ledger, removal) if removal.kind == acts.REMOVE else RemovedByTrim(ledger, removal, find)
    report = _begin(ledger, removal, options)
    if removal.kind == TRIM:
        report.notes.append("the next trim takes them again, unless its policy keeps them by then")
    return Restoration(server, ledger, report, source, options).carry_out()


def preview_undo(ledger: Ledger, run: str) -> ActReport:
    """How many jobs an undo of the run would bring back, if none of them lives, as a dry run. Raises BadInputError."""
    removal = _removal(ledger, run)
    if removal.kind == acts.REMOVE:
        number = sum(1 for _ in acts.removed(ledger, removal.id))
    else:
        with ledger.read() as connection:
            number = deaths.count_gone(connection, removal.id)
    return ActReport(acts.UNDO, removal.queue, status="dry", selected=number)


def rehydrate_jobs(
    server: Server,
    queue: str,
    jobs: Sequence[str],
    ledger: Ledger,
    *,
    find: FindArchived | None = None,
    requeue: bool = False,
    options: ActOptions = _DEFAULTS,
) -> ActReport:
    """Brings back named jobs as they were when they were last removed; with `requeue` they wait again (attempts stay,
    the stall count goes). Raises BadInputError (no ids, malformed ones), ForeignQueueError, and what the server and the
    ledger raise. A job that is kept nowhere, or that lives, is ``left``."""
    wanted = _named(server, queue, jobs, ledger)
    run = start(ledger, acts.REHYDRATE, queue, options, {"jobs": wanted[:_LOOK_BACK], "requeue": requeue})
    restoration = Restoration(
        server,
        ledger,
        ActReport(acts.REHYDRATE, queue, run),
        NamedJobs(ledger, queue, wanted, find, requeued=requeue),
        options,
    )
    if requeue:
        restoration.then = lambda back: _requeue(Queue(server, queue), back)
    return restoration.carry_out()


def preview_rehydrate(
    server: Server, queue: str, jobs: Sequence[str], ledger: Ledger, *, find: FindArchived | None = None
) -> ActReport:
    """What `rehydrate_jobs` would do, as a dry run. Raises as it does."""
    wanted = _named(server, queue, jobs, ledger)
    report, keys = ActReport(acts.REHYDRATE, queue, status="dry", selected=len(wanted)), keys_of(queue)
    for page in NamedJobs(ledger, queue, wanted, find, requeued=False).pages(SLICE):
        lives = server.read_many([("EXISTS", keys.row(job)) for job in page])
        lost = why_lost(ledger, queue, page)
        codes = {job: lost.get(job, "exists" if there else acts.DONE) for job, there in zip(page, lives, strict=True)}
        name_some(report.done_jobs, [job for job, code in codes.items() if code == acts.DONE])
        report.add({job: code for job, code in codes.items() if code != acts.DONE})
    return report


def _named(server: Server, queue: str, jobs: Sequence[str], ledger: Ledger) -> list[str]:
    wanted = sorted({job_id(job) for job in jobs})
    if not wanted:
        raise BadInputError("no job is named", fix="give job ids")
    check_owner(server, queue, ledger)
    return wanted


def _requeue(queue: Queue, jobs: Sequence[str]) -> None:
    for job in jobs:
        requeue(queue, job)


def _removal(ledger: Ledger, run: str) -> Run:
    found = runs.get(ledger, run)
    if found.kind not in (acts.REMOVE, TRIM):
        raise BadInputError(f"run {run} is a {found.kind}: it removed nothing", fix="see `emq-ops runs ls`")
    return found


def _end(server: Server, ledger: Ledger, removal: Run) -> None:
    """Ends a removal that was killed: what it did last is recorded; what it did not do, it never will."""
    settle_acted(server, ledger, acts.REMOVE, removal.queue, removal.id)
    with ledger.write() as connection:
        acts.withdraw(connection, removal.id, host_ms())
        runs.finish(connection, removal.id, runs.STOPPED, error="undone before it was over")


def _begin(ledger: Ledger, removal: Run, options: ActOptions) -> ActReport:
    """The report of this undo: of the run that was killed before its end, with what it did, else of a new one."""
    for earlier in runs.latest(ledger, queue=removal.queue, kind=acts.UNDO, limit=_LOOK_BACK):
        if earlier.policy.get("undoes") == removal.id and earlier.status in (runs.RUNNING, runs.INTERRUPTED):
            check_dead(earlier)
            take_over(ledger, earlier)
            report = ActReport(acts.UNDO, removal.queue, earlier.id)
            report.add_earlier({acts.DONE: earlier.counts.get(acts.DONE, 0)})
            return report
    return ActReport(acts.UNDO, removal.queue, start(ledger, acts.UNDO, removal.queue, options, {"undoes": removal.id}))

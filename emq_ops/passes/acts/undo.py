"""Bringing removed jobs back, whole: those of a run (an act, or a trim), or named ones.

They come back dead, byte for byte as they were taken away (by a trim without an archive: row and logs as they were when
it was first seen dead); locks and deduplication keys are not brought back.
"""

from __future__ import annotations

from collections.abc import Sequence

from emq_ops.ledger import acts, deaths, runs
from emq_ops.ledger.ledger import Ledger, host_ms
from emq_ops.ledger.runs import Run
from emq_ops.passes.acts.declared import RATE, REHYDRATE, SLICE, UNDO, RehydratePolicy, UndoPolicy
from emq_ops.passes.acts.edit import put_back
from emq_ops.passes.acts.lives import check_dead, order_of, run_act
from emq_ops.passes.acts.moving import take_from_there
from emq_ops.passes.acts.options import ActOptions
from emq_ops.passes.acts.report import ActReport
from emq_ops.passes.acts.restore import Restoration, why_lost
from emq_ops.passes.acts.slices import settle_acted
from emq_ops.passes.acts.sources import FindArchived, NamedJobs, RemovedByAct, RemovedByTrim, RestoreSource
from emq_ops.passes.acts.take_back import take_back
from emq_ops.passes.frame.context import Context
from emq_ops.passes.frame.contract import Work
from emq_ops.passes.frame.order import Order, Prediction
from emq_ops.passes.lease.owner import check_owner
from emq_ops.passes.report import name_some
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.ids import job_id
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions.jobs import requeue

TRIM = "trim"
ACTS = (acts.REQUEUE, acts.REMOVE, acts.DRAIN, acts.MOVE)
"""Acts on selected jobs, slice by slice."""
UNDOABLE = (*ACTS, acts.EDIT, TRIM)
EVERY_QUEUE = "*"
"""The queue of a run that is one over several queues (`batch`)."""
_LOOK_BACK = 1000
_DEFAULTS = ActOptions()


class UndoRun(Work):
    """What a run took away comes back, what it requeued and still waits is dead again, what it edited is as it was.
    `Order.options`: `find`, as `undo_run` has it."""

    def report(self, order: Order) -> ActReport:
        """An empty report of an undo."""
        return ActReport(order.queue, kind=acts.UNDO)

    def run(self, context: Context) -> None:
        """Ends the removal, where that was cut off; then page by page."""
        context.open()
        ledger, report, resumes = context.ledger, context.report, context.order.resumes
        removal = runs.get(ledger, context.policy.undoes)
        if removal.kind != TRIM and removal.status != runs.DONE:
            _end(context.server, ledger, removal)
        if not context.life and resumes and (done := runs.get(ledger, resumes).counts.get(acts.DONE, 0)):
            report.done = done
            report.notes.append(f"{done} were done before")
        if removal.kind == acts.REQUEUE:
            take_back(context, removal)
            return
        if removal.kind == acts.EDIT:
            put_back(context, removal)
            return
        left = take_from_there(context, removal) if removal.kind == acts.MOVE else {}
        source: RestoreSource = RemovedByAct(ledger, removal)
        if removal.kind == TRIM:
            source = RemovedByTrim(ledger, removal, context.order.options["find"])
        Restoration(context, source).carry_out()
        report.selected += len(left)
        report.add(left)
        if removal.kind == TRIM and report.done:
            report.notes.append("the next trim takes them again, unless its policy keeps them by then")

    def predict(self, context: Context) -> Prediction:
        """How many would come back."""
        report = preview_undo(context.ledger, context.policy.undoes)
        return Prediction(report, count=report.selected)


class RehydrateJobs(Work):
    """Named jobs come back. `Order.options`: `jobs` and `find`, as `rehydrate_jobs` has them."""

    def report(self, order: Order) -> ActReport:
        """An empty report of a rehydration."""
        return ActReport(order.queue, kind=acts.REHYDRATE)

    def run(self, context: Context) -> None:
        """Page by page; with `requeue` each waits again once it is back."""
        context.open()
        options, queue, requeued = context.order.options, context.queue, context.policy.requeue
        source = NamedJobs(context.ledger, queue, options["jobs"], options["find"], requeued=requeued)
        q = Queue(context.server, queue)
        Restoration(context, source, (lambda job: requeue(q, job)) if requeued else None).carry_out()

    def predict(self, context: Context) -> Prediction:
        """Which would come back."""
        options = context.order.options
        report = preview_rehydrate(context.server, context.queue, options["jobs"], context.ledger, find=options["find"])
        count = report.selected - sum(report.left.values())
        return Prediction(report, tuple(report.done_jobs), count=count, moves=("removed", "dead"))


def undo_run(
    server: Server, run: str, ledger: Ledger, *, find: FindArchived | None = None, options: ActOptions = _DEFAULTS
) -> ActReport:
    """Takes back what `run` did and nobody took back yet: removed jobs come back, requeued ones that still wait are
    dead again, an edited payload is as it was. Asked again after a kill, it goes on.

    `find` looks in the archive for jobs that the ledger does not hold any more. Raises BadInputError (the run removed
    nothing, or still runs), OnHoldError, ForeignQueueError, and what the server and the ledger raise.
    """
    removal = _removal(ledger, run)
    check_dead(removal)
    policy = UndoPolicy(options.rate or RATE, options.slice_size, options.why, undoes=run)
    order = order_of(removal.queue, policy, options, _cut_off(ledger, removal), find=find)
    return run_act(server, ledger, UNDO, order, options)


def preview_undo(ledger: Ledger, run: str) -> ActReport:
    """How many jobs an undo of the run would bring back, if none of them lives, as a dry run. Raises BadInputError."""
    removal = _removal(ledger, run)
    if removal.kind != TRIM:
        number = sum(1 for _ in acts.removed(ledger, removal.id))
        if removal.kind == acts.MOVE:
            number += sum(1 for _ in acts.landed(ledger, removal.id))
    else:
        with ledger.read() as connection:
            number = deaths.count_gone(connection, removal.id)
    return ActReport(removal.queue, "dry", kind=acts.UNDO, selected=number)


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
    the stall count goes). Raises BadInputError (no ids, malformed ones), OnHoldError, ForeignQueueError, and what the
    server and the ledger raise. A job that is kept nowhere, or that lives, is ``left``."""
    wanted = _named(jobs)
    policy = RehydratePolicy(
        options.rate or RATE, options.slice_size, options.why, jobs=tuple(wanted[:_LOOK_BACK]), requeue=requeue
    )
    return run_act(server, ledger, REHYDRATE, order_of(queue, policy, options, jobs=wanted, find=find), options)


def preview_rehydrate(
    server: Server, queue: str, jobs: Sequence[str], ledger: Ledger, *, find: FindArchived | None = None
) -> ActReport:
    """What `rehydrate_jobs` would do, as a dry run. Raises as it does."""
    wanted = _named(jobs)
    check_owner(server, queue, ledger)
    report, keys = ActReport(queue, "dry", kind=acts.REHYDRATE, selected=len(wanted)), keys_of(queue)
    for page in NamedJobs(ledger, queue, wanted, find, requeued=False).pages(SLICE):
        lives = server.read_many([("EXISTS", keys.row(job)) for job in page])
        lost = why_lost(ledger, queue, page)
        codes = {job: lost.get(job, "exists" if there else acts.DONE) for job, there in zip(page, lives, strict=True)}
        name_some(report.done_jobs, [job for job, code in codes.items() if code == acts.DONE])
        report.add({job: code for job, code in codes.items() if code != acts.DONE})
    return report


def _named(jobs: Sequence[str]) -> list[str]:
    wanted = sorted({job_id(job) for job in jobs})
    if not wanted:
        raise BadInputError("no job is named", fix="give job ids")
    return wanted


def _removal(ledger: Ledger, run: str) -> Run:
    found = runs.get(ledger, run)
    if found.kind not in UNDOABLE:
        raise BadInputError(f"run {run} is a {found.kind}: there is nothing to undo", fix="see `emq-ops runs ls`")
    if found.queue == EVERY_QUEUE:
        raise BadInputError(f"run {run} is one over several queues", fix="undo_all, which undoes each part of it")
    return found


def _end(server: Server, ledger: Ledger, removal: Run) -> None:
    """Ends a removal that was killed: what it did last is recorded; what it did not do, it never will."""
    settle_acted(server, ledger, removal.kind, removal.queue, removal.id)
    with ledger.write() as connection:
        acts.withdraw(connection, removal.id, host_ms())
        runs.finish(connection, removal.id, runs.STOPPED, error="undone before it was over")


def _cut_off(ledger: Ledger, removal: Run) -> str:
    """The undo of this removal that was killed before its end, '' where there is none."""
    for earlier in runs.latest(ledger, queue=removal.queue, kind=acts.UNDO, limit=_LOOK_BACK):
        if earlier.policy.get("undoes") == removal.id and earlier.status in (runs.RUNNING, runs.INTERRUPTED):
            check_dead(earlier)
            return earlier.id
    return ""

"""Taking a requeue back: those jobs that still wait, unclaimed, are dead again as they were."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from emq_ops.database.statements import pages
from emq_ops.ledger import acts, death_summaries, deaths, runs
from emq_ops.ledger.acts import Item
from emq_ops.ledger.ledger import Ledger
from emq_ops.ledger.runs import Run
from emq_ops.passes.acts.lives import look_again
from emq_ops.passes.acts.options import RateLimiter
from emq_ops.passes.acts.report import ActReport
from emq_ops.passes.acts.slices import read_acted
from emq_ops.passes.frame.context import Context
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.scripts import load
from emq_ops.protocol.server import Arg


def take_back(context: Context, requeue: Run) -> None:
    """Takes back what `requeue` did, slice by slice. Raises what the server and the ledger raise."""
    ledger, report, limiter = context.ledger, context.report, RateLimiter.of(context)
    report.left.clear()  # those of an earlier life are met again
    report.left_jobs.clear()
    _settle(context, requeue, report)  # the last slice of an earlier life
    report.selected = report.done
    first = True
    for items in list(_pages(ledger, requeue.id, limiter.slice)):
        limiter.wait(len(items))
        if context.budget.up:
            report.out_of_time()
            return
        if not first:
            look_again(context)
        first = False
        report.selected += len(items)
        _send(context, requeue, items)
        _settle(context, requeue, report, left=True)


def _pages(ledger: Ledger, run: str, size: int) -> Iterator[list[Item]]:
    yield from pages([item for item, _ in acts.removed(ledger, run)], size)


def _send(context: Context, requeue: Run, items: Sequence[Item]) -> None:
    keys, most = keys_of(context.queue), requeue.policy.get("keep_attempts")
    errors = _errors(context.ledger, context.queue, [item.job for item in items], requeue.id)
    args: list[Arg] = [keys.base]
    for item in items:
        now = item.attempts if most is None else min(item.attempts, int(most))
        error = errors.get(item.job)
        args += [item.job, now, item.attempts, item.stalls, 0 if error is None else 1, error or b""]
    context.server.run(load("act_take_back"), [keys.acted(context.run), keys.dead, keys.pending], args)


def _errors(ledger: Ledger, queue: str, jobs: Sequence[str], run: str) -> Mapping[str, bytes]:
    """What these jobs died of before the run revived them, as far as the ledger keeps it."""
    with ledger.read() as connection:
        return death_summaries.errors_of(connection, queue, jobs, run)


def _settle(context: Context, requeue: Run, report: ActReport, *, left: bool = False) -> None:
    """Puts what was taken back into the ledger, and lets the server forget it. `left`: also those that were left are
    counted."""
    run, keys = context.run, keys_of(context.queue)
    codes = dict(read_acted(context.server, keys, run))
    if not codes:
        return
    back = [job for job, code in codes.items() if code == acts.DONE]
    with context.ledger.write() as connection:
        acts.mark_undone(connection, requeue.id, back, run)
        deaths.reopen(connection, requeue.queue, back, requeue.id)
        counts = {"selected": max(report.selected, report.done + len(back)), acts.DONE: report.done + len(back)}
        runs.save_counts(connection, run, counts)
    report.add({job: code for job, code in codes.items() if left or code == acts.DONE})
    context.server.write("UNLINK", keys.acted(run))

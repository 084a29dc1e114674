"""Acting on selected dead jobs: requeue them, or take them away; at a bounded rate, recorded, resumable, undoable.

What is meant is noted in the ledger before anything is touched. Each slice is one script, which looks again at every
job and leaves alone whoever changed; what it did stays on the server until the ledger has it, so a kill anywhere loses
nothing and does nothing twice.
"""

from __future__ import annotations

import dataclasses

from emq_ops.database.statements import pages
from emq_ops.ledger import acts, runs
from emq_ops.ledger.ledger import Ledger, host_ms
from emq_ops.passes.acts import slices
from emq_ops.passes.acts.lives import accounted, check_dead, start, take_over
from emq_ops.passes.acts.options import RATE, SLICE, ActOptions, RateLimiter
from emq_ops.passes.acts.report import ActReport, begin_report
from emq_ops.passes.acts.selection import DeadSelection, nothing
from emq_ops.passes.acts.targets import Targets
from emq_ops.passes.events import Emit, PassStarted
from emq_ops.passes.frame.refusal import ProtectedError
from emq_ops.passes.lease.owner import check_owner
from emq_ops.passes.observe.reconcile import PAGE, learn
from emq_ops.protocol.errors import BadInputError, OutcomeUnknownError
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.server import Server

KINDS = (acts.REQUEUE, acts.REMOVE)
_TRIES = 5
_DEFAULTS = ActOptions()


def act(server: Server, kind: str, targets: Targets, ledger: Ledger, options: ActOptions = _DEFAULTS) -> ActReport:
    """Requeues (`acts.REQUEUE`) or takes away (`acts.REMOVE`) exactly those targets that are still as they were. A run
    that ends early is resumed by `resume`.

    Raises BadInputError (kind, rate, no target), ProtectedError (`protect`, and it would remove), ForeignQueueError,
    and what the server and the ledger raise.
    """
    _check(kind, options, targets)
    check_protect(kind, targets.queue, options.protect)
    check_owner(server, targets.queue, ledger)
    # The key is `selection` since the first version; what stands under it are the filters.
    policy = {"selection": dict(options.filters), "rate": options.rate or RATE, "slice": options.slice_size}
    run = start(ledger, kind, targets.queue, options, policy)
    _record_deaths(server, ledger, targets, run, options.emit)
    for page in pages(targets.jobs, 2000):
        with ledger.write() as connection:
            acts.plan(connection, run, page, host_ms())
    with ledger.write() as connection:
        runs.save_counts(connection, run, {"selected": len(targets.jobs)}, slices=1)
    options.emit(PassStarted(targets.queue, run, kind=kind))
    return _carry_out(server, ledger, begin_report(kind, targets, run), options)


def _record_deaths(server: Server, ledger: Ledger, targets: Targets, run: str, emit: Emit) -> None:
    """Deaths that no pass recorded: once they are acted upon, nobody else will see them."""
    keys, now_ms = keys_of(targets.queue), server.now_ms(targets.queue)
    for page in pages(targets.ids, PAGE):
        learn(server, ledger, keys, page, run, now_ms, emit)


def resume(server: Server, run: str, ledger: Ledger, options: ActOptions = _DEFAULTS) -> ActReport:
    """Goes on with an act that was killed or failed, from where it stood. Raises BadInputError: it is no act, it is
    over, or the process that runs it still lives; ProtectedError as `act`."""
    found = unended(ledger, run)
    check_protect(found.kind, found.queue, options.protect)
    if not found.slices:
        with ledger.write() as connection:
            runs.finish(connection, run, runs.FAILED, error="killed while it was planned; nothing was touched")
        raise BadInputError(f"run {run} was killed while it was planned; nothing was touched", fix="start it anew")
    check_owner(server, found.queue, ledger)
    take_over(ledger, found)
    report = ActReport(found.kind, found.queue, run, selected=int(found.counts.get("selected", 0)))
    rate, size = int(found.policy.get("rate", RATE)), int(found.policy.get("slice", SLICE))
    options = dataclasses.replace(options, rate=options.rate or rate, slice_size=size)
    return _carry_out(server, ledger, report, options)


def unended(ledger: Ledger, run: str) -> runs.Run:
    """An act that can be resumed. Raises BadInputError: it is no act, it is over, or its process may still live."""
    found = runs.get(ledger, run)
    if found.kind not in KINDS:
        raise BadInputError(f"run {run} is a {found.kind}, not an act", fix="see `emq-ops runs ls`")
    if found.status == runs.DONE:
        raise BadInputError(f"run {run} is done", fix="there is nothing to resume")
    check_dead(found)
    return found


def preview_resume(ledger: Ledger, run: str) -> ActReport:
    """What `resume` would still do, as a dry run. Raises BadInputError as it does."""
    found = unended(ledger, run)
    with ledger.read() as connection:
        waiting = acts.totals(connection, run).get(acts.PLANNED, 0)
    return ActReport(found.kind, found.queue, run, status="dry", selected=waiting if found.slices else 0)


def check_protect(kind: str, queue: str, protect: bool) -> None:
    """Raises ProtectedError where jobs of a protected queue would go."""
    if protect and kind == acts.REMOVE:
        raise ProtectedError("protected: nothing is removed from it", where=queue, fix="set protect: false first")


def _check(kind: str, options: ActOptions, targets: Targets) -> None:
    if kind not in KINDS:
        raise BadInputError(f"no act is called '{kind}'", fix=f"one of {', '.join(KINDS)}")
    if options.rate is not None and options.rate < 1:
        raise BadInputError(f"rate is {options.rate}", fix="give jobs a second, 1 or more")
    if not targets.jobs:
        raise nothing([targets.queue], DeadSelection())


def _carry_out(server: Server, ledger: Ledger, report: ActReport, options: ActOptions) -> ActReport:
    run = report.run or ""
    with accounted(ledger, report, options.emit):
        slices.settle_acted(server, ledger, report.kind, report.queue, run)  # the last slice of an earlier life
        with ledger.read() as connection:
            report.add_earlier(acts.totals(connection, run))
        _slices(server, ledger, report, run, RateLimiter.of(options))
    return report


def _slices(server: Server, ledger: Ledger, report: ActReport, run: str, limiter: RateLimiter) -> None:
    keys, tries = keys_of(report.queue), 0
    while True:
        with ledger.read() as connection:
            items = acts.planned(connection, run, limiter.slice)
        if not items:
            return
        limiter.wait(len(items))
        try:
            slices.send_slice(server, report.kind, keys, run, items)
        except OutcomeUnknownError:
            # Whether it was done is known by what it left on the server.
            tries += 1
            if tries >= _TRIES:
                raise
        report.add(slices.settle_acted(server, ledger, report.kind, report.queue, run))

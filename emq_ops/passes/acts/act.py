"""Acting on selected dead jobs: requeue them, or take them away; at a bounded rate, recorded, resumable, undoable.

What is meant is noted in the ledger before anything is touched. Each slice is one script, which looks again at every
job and leaves alone whoever changed; what it did stays on the server until the ledger has it, so a kill anywhere loses
nothing and does nothing twice. No lease is needed for that, so an act works at once beside a daemon that leads the
queue.
"""

from __future__ import annotations

from emq_ops.database.statements import pages
from emq_ops.ledger import acts, runs
from emq_ops.ledger.ledger import Ledger, host_ms
from emq_ops.passes.acts import slices
from emq_ops.passes.acts.declared import DRAIN, MOVE, RATE, REMOVE, REQUEUE, SLICE, MovePolicy, SelectedPolicy
from emq_ops.passes.acts.lives import check_dead, look_again, order_of, run_act, tell_progress
from emq_ops.passes.acts.options import ActOptions, RateLimiter
from emq_ops.passes.acts.report import ActReport, begin_report, preview
from emq_ops.passes.acts.selection import DeadSelection, nothing
from emq_ops.passes.acts.targets import Targets, note_flow_parents
from emq_ops.passes.events import Emit, nowhere
from emq_ops.passes.frame.context import Context
from emq_ops.passes.frame.contract import Work
from emq_ops.passes.frame.order import Order, Prediction
from emq_ops.passes.observe.reconcile import PAGE, learn
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.server import Server

ACTS = {one.name: one for one in (REQUEUE, REMOVE, DRAIN, MOVE)}
_DEFAULTS = ActOptions()


class ActOnSelected(Work):
    """What a requeue and removals share. `Order.options` has the `targets` of one that begins."""

    kind: str

    def report(self, order: Order) -> ActReport:
        """What is to be done, and what should be known first."""
        targets = order.options.get("targets")
        return (
            ActReport(order.queue, kind=self.kind)
            if targets is None
            else begin_report(self.kind, targets, order.policy.keep_attempts)
        )

    def run(self, context: Context) -> None:
        """Plans, where that was not done; then slice by slice."""
        context.open(tell=False)
        if not (context.order.resumes or context.carried.get("planned")):
            _plan(context)
            context.carried["planned"] = True
        context.open()  # told from here on: it can be resumed
        self._carry_out(context)

    def predict(self, context: Context) -> Prediction:
        """Who would be acted upon, and who would be left."""
        targets: Targets = context.order.options["targets"]
        if self.kind in slices.TAKES_AWAY:
            note_flow_parents(context.server, targets)
        report = preview(self.kind, targets, context.policy.keep_attempts)
        count = report.selected - sum(report.left.values())
        return Prediction(
            report, tuple(report.done_jobs), removals=count if self.kind in slices.TAKES_AWAY else 0, count=count
        )

    def _carry_out(self, context: Context) -> None:
        server, ledger, report, run = context.server, context.ledger, context.report, context.run
        slices.settle_acted(server, ledger, self.kind, context.queue, run)  # the last slice of an earlier life
        self._taken(context)
        with ledger.read() as connection:
            totals = acts.totals(connection, run)
        report.recount(totals)
        if context.order.resumes:
            report.selected = sum(totals.values())
            if report.done and not context.life:
                report.notes.append(f"{report.done} were done before")
        keys, limiter, first = keys_of(context.queue), RateLimiter.of(context), True
        while True:
            with ledger.read() as connection:
                items = acts.planned(connection, run, limiter.slice)
            if not items:
                return
            limiter.wait(len(items))
            if context.budget.up:
                report.out_of_time()
                return
            if not first:
                look_again(context)
            first = False
            slices.send_slice(server, self.kind, keys, run, items, context.policy.keep_attempts)
            report.add(slices.settle_acted(server, ledger, self.kind, context.queue, run))
            self._taken(context)
            tell_progress(context, report.selected)

    def _taken(self, context: Context) -> None:
        """A slice was done, and the ledger has it."""


class RequeueDead(ActOnSelected):
    """Dead jobs wait again."""

    kind = acts.REQUEUE


class RemoveDead(ActOnSelected):
    """Dead jobs go."""

    kind = acts.REMOVE


class DrainWaiting(ActOnSelected):
    """Waiting jobs go."""

    kind = acts.DRAIN


def _plan(context: Context) -> None:
    plan_items(
        context.server, context.ledger, context.order.options["targets"], context.run, context.name, context.emit
    )


def plan_items(server: Server, ledger: Ledger, targets: Targets, run: str, kind: str, emit: Emit = nowhere) -> None:
    """Notes in the ledger what a run is about to touch. Raises what the server and the ledger raise."""
    if kind in slices.OF_THE_DEAD:
        # Deaths that no pass recorded: once they are acted upon, nobody else will see them.
        now = server.now_ms(targets.queue)
        for page in pages(targets.ids, PAGE):
            learn(server, ledger, keys_of(targets.queue), page, run, now, emit)
    for some in pages(targets.jobs, 2000):
        with ledger.write() as connection:
            acts.plan(connection, run, some, host_ms())
    with ledger.write() as connection:
        runs.save_counts(connection, run, {"selected": len(targets.jobs)}, slices=1)


def order_to_act(targets: Targets, options: ActOptions) -> Order:
    """A new act on `targets`, as a door asks for it."""
    return order_of(targets.queue, policy_of(options), options, targets=targets)


def policy_of(options: ActOptions, part_of: str = "") -> SelectedPolicy:
    """How an act goes about it, as it is kept with its run."""
    rate, size, most = options.rate or RATE, options.slice_size, options.keep_attempts
    if options.to is None:
        return SelectedPolicy(rate, size, options.why, options.protect, options.filters, most, part_of)
    return MovePolicy(rate, size, options.why, options.protect, options.filters, most, part_of, *options.to)


def act(server: Server, kind: str, targets: Targets, ledger: Ledger, options: ActOptions = _DEFAULTS) -> ActReport:
    """Requeues (`acts.REQUEUE`) or takes away (`acts.REMOVE`: dead ones, `acts.DRAIN`: waiting ones) exactly those
    targets that are still as they were. A run that ends early is resumed by `resume`.

    Raises BadInputError (kind, rate, no target), ProtectedError (`protect`, and it would remove), OnHoldError,
    ForeignQueueError, and what the server and the ledger raise.
    """
    _check(kind, options, targets)
    return run_act(server, ledger, ACTS[kind], order_to_act(targets, options), options)


def resume(server: Server, run: str, ledger: Ledger, options: ActOptions = _DEFAULTS) -> ActReport:
    """Goes on with an act that was killed or failed, from where it stood. Raises BadInputError: it is no act, it is
    over, or the process that runs it still lives; what `act` raises."""
    found = unended(ledger, run)
    if not found.slices:
        with ledger.write() as connection:
            runs.finish(connection, run, runs.FAILED, error="killed while it was planned; nothing was touched")
        raise BadInputError(f"run {run} was killed while it was planned; nothing was touched", fix="start it anew")
    rate, size = int(found.policy.get("rate", RATE)), int(found.policy.get("slice", SLICE))
    most = found.policy.get("keep_attempts")
    policy = SelectedPolicy(options.rate or rate, size, protect=options.protect, keep_attempts=most)
    if found.kind == acts.MOVE:
        queue, lane = str(found.policy["to_queue"]), str(found.policy["to_lane"])
        policy = MovePolicy(options.rate or rate, size, protect=options.protect, to_queue=queue, to_lane=lane)
    return run_act(server, ledger, ACTS[found.kind], order_of(found.queue, policy, options, run), options)


def unended(ledger: Ledger, run: str) -> runs.Run:
    """An act that can be resumed. Raises BadInputError: it is no act, it is over, or its process may still live."""
    found = runs.get(ledger, run)
    if found.kind not in ACTS:
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
    return ActReport(found.queue, "dry", run, kind=found.kind, selected=waiting if found.slices else 0)


def _check(kind: str, options: ActOptions, targets: Targets) -> None:
    if kind not in ACTS:
        raise BadInputError(f"no act is called '{kind}'", fix=f"one of {', '.join(ACTS)}")
    if options.rate is not None and options.rate < 1:
        raise BadInputError(f"rate is {options.rate}", fix="give jobs a second, 1 or more")
    if not targets.jobs:
        raise nothing([targets.queue], DeadSelection())

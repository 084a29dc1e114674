"""``emq-ops queue drain`` and ``obliterate``: emptying a queue, and taking it away."""

from __future__ import annotations

import contextlib
from typing import Annotated

import typer

from emq_ops.cli.asking import require
from emq_ops.cli.audit_acting import carry_out, protected, tell_acts
from emq_ops.cli.context import CommandContext
from emq_ops.cli.options import ActWhy, DryRun, QueueArg, Yes
from emq_ops.cli.output import counted, say
from emq_ops.cli.queues import require_queue
from emq_ops.cli.removing import DRAIN_RATE, act_on_waiting, selected
from emq_ops.ledger import acts
from emq_ops.ledger.ledger import Ledger
from emq_ops.passes.acts.act import order_to_act
from emq_ops.passes.acts.declared import DRAIN, OBLITERATE, ObliteratePolicy
from emq_ops.passes.acts.lives import check_allowed, order_of
from emq_ops.passes.acts.obliterate import ObliterateReport
from emq_ops.passes.acts.options import ActOptions
from emq_ops.passes.acts.selection import DeadSelection, EmptySelectionError
from emq_ops.passes.acts.targets import Targets, choose
from emq_ops.passes.acts.waiting import SCHEDULED, WAITING, WaitingSelection, WaitingSet
from emq_ops.passes.frame.context import Services
from emq_ops.passes.frame.frame import predict_pass, run_pass
from emq_ops.passes.frame.refusal import check_protected
from emq_ops.passes.lease.kept import NoLease
from emq_ops.protocol.errors import EmqError
from emq_ops.protocol.keyspace import queue_name
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import reads

Rate = Annotated[int, typer.Option("--rate", help="At most so many jobs a second.", metavar="N", min=1)]


def drain(
    ctx: typer.Context,
    queue: QueueArg,
    lane: Annotated[list[str] | None, typer.Option(help="Just this lane; repeatable.", metavar="LANE")] = None,
    scheduled: Annotated[bool, typer.Option("--scheduled", help="The scheduled ones, too.")] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    rate: Rate = DRAIN_RATE,
    why: ActWhy = "",
) -> None:
    """Take the waiting jobs of one queue away, flat and in lanes; what is in flight, and the dead, stay.

    They are kept in the state, whole: `emq-ops undo RUN` brings them back to where they stood. Jobs that a worker's
    lock stands on are left. Parents of flow children hear that these died, and an undo does not take that back.

    Examples:

      emq-ops queue drain orders --dry-run

      emq-ops queue drain orders --scheduled --why 'bad import' --yes
    """
    context, queue = CommandContext.of(ctx), queue_name(queue)
    states = (WAITING, SCHEDULED) if scheduled else (WAITING,)
    selection = WaitingSelection(states, tuple(lane or ()))
    with context.server("queue") as server:
        require_queue(context, queue, server)
        options = ActOptions(rate, why=why, filters=selection.as_row())
        act_on_waiting(context, server, selected(server, [queue], selection), options, yes=yes, dry_run=dry_run)


def obliterate(
    ctx: typer.Context,
    queue: QueueArg,
    force: Annotated[
        bool, typer.Option("--force", help="Also jobs in flight, and those that a removal leaves: for good.")
    ] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    rate: Rate = DRAIN_RATE,
    why: ActWhy = "",
) -> None:
    """Take one whole paused queue away: jobs, lanes, settings, repeatables. Event streams and the flow outbox stay.

    Waiting, scheduled and dead jobs are taken first, kept in the state, so that `emq-ops undo RUN` brings them back.
    What can't be brought back (settings, repeatables, jobs in flight) is named before.

    Examples:

      emq-ops queue obliterate old-queue --dry-run

      emq-ops queue obliterate old-queue --yes
    """
    context, queue = CommandContext.of(ctx), queue_name(queue)
    with context.server("queue") as server, contextlib.ExitStack() as stack:
        require_queue(context, queue, server)
        policy = ObliteratePolicy(why=why, protect=protected(context, queue), force=force)
        options = ActOptions(rate, why=why, protect=policy.protect)
        order = order_of(queue, policy, options)
        check_protected(OBLITERATE, order)
        _check(server, queue, force=force)
        seen: ObliterateReport = predict_pass(Services(server, None), OBLITERATE, order).report
        what = f"{counted(seen.jobs, 'job')}, {counted(seen.lanes, 'lane')}, {counted(seen.repeatables, 'repeatable')}"
        say(f"{queue}: {what} would go; of them settings, lanes and repeatables for good")
        if dry_run:
            say("nothing was changed")
            return
        require(context, f"Obliterate {queue} with {what}?", yes)
        ledger = stack.enter_context(context.ledger())
        check_allowed(server, ledger, OBLITERATE, order)
        _take_jobs(context, server, ledger, queue, options)
        if not force and _is_left(Queue(server, queue)):
            raise EmqError(
                "some of its jobs are held, or belong to flows: they would be lost for good",
                where=queue,
                fix="see `emq-ops job ls`, or --force",
            )
        report = run_pass(Services(server, ledger), OBLITERATE, order, NoLease(server, queue, ledger)).report
        say(f"{queue}: {'not all gone yet: ask again' if report.more else 'gone'} (run {report.run})")
    if context.output != "table":
        context.emit_one(report.as_row())


def _check(server: Server, queue: str, *, force: bool) -> None:
    """Raises EmqError where the wire would refuse it."""
    q = Queue(server, queue)
    if not reads.is_paused(q):
        raise EmqError("the queue is not paused", where=queue, fix=f"emq-ops queue pause {queue}")
    active = reads.counts(q).active
    if active and not force:
        raise EmqError(f"{active} jobs are in flight", where=queue, fix="wait for them, or --force")


def _is_left(q: Queue) -> bool:
    """Whether jobs are left that nobody works on, in lanes or not."""
    counts = reads.counts(q)
    return bool(counts.pending or counts.schedule or counts.dead or any(lane.waiting for lane in reads.every_lane(q)))


def _take_jobs(context: CommandContext, server: Server, ledger: Ledger, queue: str, options: ActOptions) -> None:
    """Whoever waits or is dead goes first, kept whole."""
    waiting = WaitingSet(server, queue, WaitingSelection((WAITING, SCHEDULED))).targets()
    if waiting.jobs:
        check_allowed(server, ledger, DRAIN, order_to_act(waiting, options))
        tell_acts(carry_out(context, server, ledger, acts.DRAIN, [waiting], options), ledger)
    dead = Targets(queue)
    with contextlib.suppress(EmptySelectionError):
        dead = choose(server, queue, DeadSelection(), ledger)
    if dead.jobs:
        tell_acts(carry_out(context, server, ledger, acts.REMOVE, [dead], options), ledger)

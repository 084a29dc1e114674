"""``emq-ops job move`` and ``lane reassign``: waiting jobs into another queue or lane, as one run with one undo."""

from __future__ import annotations

from typing import Annotated

import typer

from emq_ops.cli.audit_acting import go_on
from emq_ops.cli.context import CommandContext
from emq_ops.cli.job_acts import condition
from emq_ops.cli.job_places import located
from emq_ops.cli.options import ActWhy, DryRun, QueueArg, Yes
from emq_ops.cli.output import say
from emq_ops.cli.queues import is_new, pick, require_queue
from emq_ops.cli.removing import DRAIN_RATE, act_on_waiting, selected
from emq_ops.cli.values import instant_ms
from emq_ops.cli.waiting_options import JobIds, MintedAfter, MintedBefore, OfQueues, Resumed, States, Where
from emq_ops.ledger import acts
from emq_ops.passes.acts.options import ActOptions
from emq_ops.passes.acts.waiting import SCHEDULED, WAITING, WaitingSelection
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.ids import group_id
from emq_ops.protocol.keyspace import queue_name

Rate = Annotated[int, typer.Option("--rate", help="At most so many jobs a second.", metavar="N", min=1)]


def move(
    ctx: typer.Context,
    jobs: JobIds = None,
    queue: OfQueues = None,
    to: Annotated[str | None, typer.Option(help="Into this queue.", metavar="QUEUE")] = None,
    to_lane: Annotated[str, typer.Option(help="Into this lane there, GRP...", metavar="LANE")] = "",
    where: Where = "",
    state: States = f"{WAITING},{SCHEDULED}",
    after: MintedAfter = None,
    before: MintedBefore = None,
    lane: Annotated[list[str] | None, typer.Option(help="Out of this lane; repeatable.", metavar="LANE")] = None,
    new: Annotated[bool, typer.Option("--new", help="--to may be a new queue.")] = False,
    resumed: Resumed = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    rate: Rate = DRAIN_RATE,
    why: ActWhy = "",
) -> None:
    """Put waiting jobs into another queue or lane, in order, by their ids or by a condition; one run, one undo.

    Id, row, logs and the instant of a scheduled one stay; grouped ones keep their lane unless --to-lane names one. Flow
    children and parents, and jobs that a worker's lock stands on, are left. A deduplication key is given back.

    Examples:

      emq-ops job move --queue orders --where 'payload.tenant == 42' --to orders-large --dry-run

      emq-ops job move JOB0SS8QFjgi3i --to-lane GRP0SS8QFjgi3i --yes
    """
    context = CommandContext.of(ctx)
    if resumed is not None:
        go_on(context, resumed, acts.MOVE, rate=None, dry_run=dry_run)
        return
    selection = WaitingSelection(
        tuple(one.strip() for one in state.split(",") if one.strip()),
        tuple(lane or ()),
        tuple(jobs or ()),
        None if after is None else instant_ms(after, "--minted-after"),
        None if before is None else instant_ms(before, "--minted-before"),
        condition(where) if where else None,
    )
    if to is None and not to_lane:
        raise BadInputError("where to?", fix="--to QUEUE, --to-lane LANE, or both")
    if to_lane:
        group_id(to_lane)
    with context.server("job") as server:
        names = pick(context, queue or (), server)
        if jobs and not queue:
            names = sorted({name for name, _ in located(context, server, jobs, None).values()})
        elif not selection.narrows and not queue:
            raise BadInputError("which jobs?", fix="give ids, --queue, --where, --lane or --minted-after")
        target = names[0] if to is None else queue_name(to)
        if to is None and len(names) > 1:
            raise BadInputError("a lane of which queue?", fix="--to QUEUE")
        if target in names and not to_lane:
            raise BadInputError("the jobs are there", where=target, fix="--to another queue, or --to-lane LANE")
        if to is not None and not new and is_new(context, target, server):
            say(f"emq-ops: {target} is a new queue; these are its first jobs")
        options = ActOptions(rate, why=why, filters=selection.as_row(), to=(target, to_lane))
        act_on_waiting(context, server, selected(server, names, selection), options, yes=yes, dry_run=dry_run)


def reassign(
    ctx: typer.Context,
    queue: QueueArg,
    lane: Annotated[str, typer.Argument(help="Out of this lane, GRP...", metavar="LANE")],
    to: Annotated[str, typer.Argument(help="Into this one, GRP...", metavar="TO")],
    yes: Yes = False,
    dry_run: DryRun = False,
    rate: Rate = DRAIN_RATE,
    why: ActWhy = "",
) -> None:
    """Put the waiting jobs of a lane into another lane, in order; one run, one undo.

    Some of them: `emq-ops job move --to-lane`.

    Examples:

      emq-ops lane reassign orders GRP0SS8QFjgi3i GRP0SS8QFjgi3j --dry-run

      emq-ops lane reassign orders GRP0SS8QFjgi3i GRP0SS8QFjgi3j --why 'tenants merged' --yes
    """
    context, queue = CommandContext.of(ctx), queue_name(queue)
    selection = WaitingSelection((WAITING,), (group_id(lane),))
    if group_id(to) == lane:
        raise BadInputError("one lane twice", where=queue, fix="name another one")
    with context.server("lane") as server:
        require_queue(context, queue, server)
        options = ActOptions(rate, why=why, filters=selection.as_row(), to=(queue, to))
        act_on_waiting(context, server, selected(server, [queue], selection), options, yes=yes, dry_run=dry_run)

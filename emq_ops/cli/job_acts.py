"""Acts on jobs by their ids, or by what is in them: each a run, and undone where something went or changed."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated

import typer

from emq_ops.cli.asking import require
from emq_ops.cli.audit_acting import carry_out, go_on, predict, tell_acts
from emq_ops.cli.context import CommandContext
from emq_ops.cli.exits import EXIT_ERROR
from emq_ops.cli.job_places import located
from emq_ops.cli.options import ActWhy, DryRun, Yes
from emq_ops.cli.output import counted, say
from emq_ops.cli.queues import pick
from emq_ops.cli.removing import DRAIN_RATE, act_on_waiting, selected
from emq_ops.cli.values import duration_ms, file_of, instant_ms
from emq_ops.cli.waiting_options import JobIds, MintedAfter, MintedBefore, OfQueues, Resumed, States, Where
from emq_ops.ledger import acts
from emq_ops.passes.acts.declared import EDIT
from emq_ops.passes.acts.edit import edit_payload, order_to_edit
from emq_ops.passes.acts.options import ActOptions
from emq_ops.passes.acts.selection import DeadSelection
from emq_ops.passes.acts.targets import Targets, choose
from emq_ops.passes.acts.waiting import NAMES, SCHEDULED, WAITING, WaitingSelection
from emq_ops.passes.frame.context import Services
from emq_ops.passes.frame.frame import predict_pass
from emq_ops.protocol.errors import BadInputError, EmqError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import leases
from emq_ops.protocol.transitions.cancel import DEFAULT_REASON, request
from emq_ops.protocol.transitions.jobs import read_row
from emq_ops.syntax.errors import Position

if TYPE_CHECKING:
    from emq_ops.syntax.expressions import Condition

JobsArg = Annotated[list[str], typer.Argument(help="Jobs, by their ids.", metavar="JOB")]
JobArg = Annotated[str, typer.Argument(help="The job.", metavar="JOB")]
InQueue = Annotated[str | None, typer.Option("--queue", help="Their queue, if known.", metavar="QUEUE")]


def _dead_targets(server: Server, places: dict[str, tuple[str, str]]) -> list[Targets]:
    queues: dict[str, list[str]] = {}
    for job, (queue, state) in places.items():
        if state != "dead":
            raise BadInputError(f"{job} is {state}, not dead", where=queue, fix="only dead jobs are requeued")
        queues.setdefault(queue, []).append(job)
    return [choose(server, queue, DeadSelection(jobs=tuple(some))) for queue, some in sorted(queues.items())]


def requeue(
    ctx: typer.Context,
    jobs: JobsArg,
    queue: InQueue = None,
    reset: Annotated[bool, typer.Option("--reset-attempts", help="They begin at the first attempt again.")] = False,
    keep: Annotated[
        int | None,
        typer.Option("--max-attempts", help="They keep at most so many of their attempts.", metavar="N", min=0),
    ] = None,
    dry_run: DryRun = False,
    why: ActWhy = "",
) -> None:
    """Put dead jobs back to wait, by their ids.

    Examples:

      emq-ops job requeue JOB0SS8QFjgi3i --reset-attempts

      emq-ops job requeue JOB0SS8QFjgi3i --queue orders --dry-run
    """
    if reset and keep is not None:
        raise BadInputError("--reset-attempts and --max-attempts at once", fix="give one of them")
    context, options = CommandContext.of(ctx), ActOptions(why=why, keep_attempts=0 if reset else keep)
    with context.server("job") as server, contextlib.ExitStack() as stack:
        targets = _dead_targets(server, located(context, server, jobs, queue))
        if dry_run:
            ledger = stack.enter_context(context.ledger_if_there())
            tell_acts(predict(context, server, ledger, acts.REQUEUE, targets, options), None)
            say("nothing was changed")
            return
        state = stack.enter_context(context.ledger())
        reports = carry_out(context, server, state, acts.REQUEUE, targets, options)
        tell_acts(reports, state)
    if not any(report.done for report in reports):
        raise typer.Exit(EXIT_ERROR)


def remove(
    ctx: typer.Context,
    jobs: JobIds = None,
    queue: OfQueues = None,
    where: Where = "",
    state: States = f"{WAITING},{SCHEDULED}",
    after: MintedAfter = None,
    before: MintedBefore = None,
    lane: Annotated[list[str] | None, typer.Option(help="In this lane; repeatable.", metavar="LANE")] = None,
    resumed: Resumed = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    rate: Annotated[
        int, typer.Option("--rate", help="At most so many jobs a second.", metavar="N", min=1)
    ] = DRAIN_RATE,
    why: ActWhy = "",
) -> None:
    """Take waiting jobs away, by their ids or by a condition on what is in them; one run, one undo.

    The condition reads `payload` (what its JSON says, else its text) and `job` (id, queue, state, lane, attempts,
    stalls, minted_ms, due_ms). A job for which it can't be told is left. Dead jobs: `emq-ops dead remove`.

    Examples:

      emq-ops job remove --queue orders --where 'payload.tenant == 42' --minted-after 10:00 --dry-run

      emq-ops job remove JOB0SS8QFjgi3i --yes
    """
    context = CommandContext.of(ctx)
    if resumed is not None:
        go_on(context, resumed, acts.DRAIN, rate=None, dry_run=dry_run)
        return
    selection = WaitingSelection(
        tuple(one.strip() for one in state.split(",") if one.strip()),
        tuple(lane or ()),
        tuple(jobs or ()),
        None if after is None else instant_ms(after, "--minted-after"),
        None if before is None else instant_ms(before, "--minted-before"),
        condition(where) if where else None,
    )
    if not selection.narrows:
        raise BadInputError(
            "which jobs?", fix="give ids, --where, --minted-after; all of a queue: `emq-ops queue drain`"
        )
    with context.server("job") as server:
        names = pick(context, queue or (), server)
        if jobs and not queue:
            names = sorted({name for name, _ in located(context, server, jobs, None).values()})
        options = ActOptions(rate, why=why, filters=selection.as_row())
        act_on_waiting(context, server, selected(server, names, selection), options, yes=yes, dry_run=dry_run)


def condition(text: str) -> Condition:
    """The condition of ``--where``. Raises BadInputError."""
    from emq_ops.syntax.expressions import Condition  # and jinja: just where there is one

    return Condition.read(text, Position("--where", 1, 1), NAMES)


def cancel(
    ctx: typer.Context,
    jobs: JobsArg,
    queue: InQueue = None,
    reason: Annotated[str, typer.Option(help="Told to the worker, and recorded.", metavar="TEXT")] = DEFAULT_REASON,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Ask for jobs' cancellation: waiting ones are removed, a worker that holds one is told.

    Examples:

      emq-ops job cancel JOB0SS8QFjgi3i --reason 'customer left'

      emq-ops job cancel JOB0SS8QFjgi3i --dry-run
    """
    context = CommandContext.of(ctx)
    with context.server("job") as server:
        places = located(context, server, jobs, queue)
        waiting = sum(state != "active" for _, state in places.values())
        if waiting and not dry_run:
            say("what waits is removed for good by a cancellation; `emq-ops job remove` keeps it, for undo")
            require(context, f"Remove {counted(waiting, 'waiting job')}, for good?", yes)
        rows = [
            {
                "queue": name,
                "job": job,
                "answer": f"would be asked ({state})" if dry_run else request(Queue(server, name), job, reason).value,
            }
            for job, (name, state) in places.items()
        ]
    context.emit_rows(rows, ("queue", "job", "answer"))


def extend(
    ctx: typer.Context,
    job: JobArg,
    length: Annotated[str, typer.Option("--for", help="From now on (5m).", metavar="DURATION")],
    queue: InQueue = None,
    dry_run: DryRun = False,
) -> None:
    """Give the lease of a job in flight more time, from now on: its worker is slow, and not gone.

    Examples:

      emq-ops job extend JOB0SS8QFjgi3i --for 10m

      emq-ops job extend JOB0SS8QFjgi3i --for 10m --dry-run
    """
    context, ms = CommandContext.of(ctx), duration_ms(length, "--for")
    with context.server("job") as server:
        [(name, state)] = located(context, server, [job], queue).values()
        if state != "active":
            raise BadInputError(f"{job} is {state}: it has no lease", where=name)
        q = Queue(server, name)
        row = read_row(q, job) or {}
        token = row.get(b"attempts", b"")
        if not token.isdigit():
            raise EmqError("its row has no attempts", where=name, fix=f"emq-ops doctor {name}")
        if dry_run:
            say(f"{name}: the lease of {job} would stand for {length} from now; nothing was changed")
            return
        outcome = leases.extend(q, job, int(token), ms)
    if outcome is not leases.Extended.DONE:
        raise EmqError(f"{job} is no longer in flight", where=name, fix=f"emq-ops job show {job}")
    say(f"{name}: the lease of {job} stands for {length} from now")


def edit(
    ctx: typer.Context,
    job: JobArg,
    payload: Annotated[str, typer.Option("--payload", help="The new payload, byte for byte.", metavar="FILE")],
    queue: InQueue = None,
    dry_run: DryRun = False,
    why: ActWhy = "",
) -> None:
    """Put another payload in the place of a job's, before a retry; the old one is kept, and `undo` puts it back.

    A job in flight is left: a worker has its payload already.

    Examples:

      emq-ops job edit JOB0SS8QFjgi3i --payload fixed.json --why 'wrong currency'

      emq-ops job edit JOB0SS8QFjgi3i --payload fixed.json --dry-run
    """
    context, file = CommandContext.of(ctx), file_of(payload)
    try:
        body = file.read_bytes()
    except OSError as fault:
        raise BadInputError(f"can't be read: {fault.strerror}", where=str(file)) from None
    options = ActOptions(why=why)
    with context.server("job") as server, contextlib.ExitStack() as stack:
        [(name, _)] = located(context, server, [job], queue).values()
        if dry_run:
            report = predict_pass(Services(server, None), EDIT, order_to_edit(name, job, body, options)).report
            say(f"{name}: the payload of {job} would become {len(body):,} bytes of {file}; nothing was changed")
        else:
            ledger = stack.enter_context(context.ledger())
            report = edit_payload(server, name, job, body, ledger, options)
            tell_acts([report], ledger)
    if context.output != "table":
        context.emit_one(report.as_row())
    if not dry_run and not report.done:
        raise typer.Exit(EXIT_ERROR)

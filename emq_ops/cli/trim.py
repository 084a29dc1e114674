"""``emq-ops trim``: one trim of a queue's dead jobs."""

from __future__ import annotations

import contextlib
import importlib
from dataclasses import replace
from typing import Annotated

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.exits import EXIT_ERROR
from emq_ops.cli.options import new_app
from emq_ops.cli.output import say
from emq_ops.cli.passing import bounded, is_known, near_of, show, with_given
from emq_ops.cli.values import duration_ms
from emq_ops.ledger import bounds
from emq_ops.passes.frame.once import run_once
from emq_ops.passes.predict import predict_trim
from emq_ops.passes.report import TrimReport
from emq_ops.passes.trim.dead_trim import check_policy
from emq_ops.passes.trim.dead_trim import trim as trim_pass
from emq_ops.policy.models import DeadPolicy
from emq_ops.policy.rows import as_row
from emq_ops.protocol.fence import Fence
from emq_ops.protocol.keyspace import queue_name
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.transitions.reads import is_there

app = new_app()
ARCHIVE = "emq_ops.cli.trim_archive"


@app.command()
def trim(
    ctx: typer.Context,
    queue: Annotated[str, typer.Argument(help="The queue.")],
    keep: Annotated[int | None, typer.Option(help="Exactly this many dead jobs stay.", min=0)] = None,
    max_age: Annotated[str | None, typer.Option(help="Older ones go (30d).", metavar="DURATION")] = None,
    age_by: Annotated[str | None, typer.Option(help="Age since first seen dead, or minted.")] = None,
    archive: Annotated[
        bool | None, typer.Option("--archive/--no-archive", help="Into the archive first, or not.")
    ] = None,
    max_removals: Annotated[int | None, typer.Option(help="Remove nothing if more would go.", min=0)] = None,
    timeout: Annotated[
        str | None, typer.Option(help="End in time; the next trim goes on (30s).", metavar="DURATION")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the victims; change nothing.")] = False,
) -> None:
    """Delete dead jobs beyond what the policy keeps, each with its row, logs and flow books.

    The policy is the config's; --keep and --max-age replace both of its bounds. Held jobs and flow children are skipped
    and reported. Beside a live daemon the daemon runs it. Exit 1: the queue is held or protected, a guard stopped the
    pass, or the time ran out.
    """
    context, queue = CommandContext.of(ctx), queue_name(queue)
    policy: DeadPolicy = context.dead(queue)
    applied = keep is None and max_age is None
    if not applied:
        policy = replace(policy, keep=keep, max_age_ms=duration_ms(max_age, "--max-age"))
    policy = with_given(policy, {"age_by": age_by, "archive": archive, "max_removals": max_removals})
    with bounded(timeout), context.server("trim") as server, contextlib.ExitStack() as stack:
        make = (
            importlib.import_module(ARCHIVE).archiver(context, policy, server, queue, stack) if policy.archive else None
        )
        check_policy(queue, policy, archived=make is not None)
        if dry_run:
            with context.ledger_if_there() as there:
                show(context, "trim", predict_trim(server, queue, policy, there).report.as_row())
            return
        if not is_there(Queue(server, queue)) and not is_known(context, queue):
            say(f"emq-ops: {queue}: the server has no such queue{near_of(queue, context.layers, server)}")
            show(context, "trim", TrimReport(queue, keep=policy.keep, max_age_ms=policy.max_age_ms).as_row())
            return
        ledger = stack.enter_context(context.ledger())

        def run(fence: Fence) -> TrimReport:
            archiver = make(fence) if make else None
            # The first trim by the applied policy removes nothing that its plan did not list.
            bound = None
            if applied:
                with ledger.read() as connection:
                    bound = bounds.of(connection, queue)
            only = bound.ids if bound is not None else None
            done = trim_pass(server, queue, policy, ledger, fence, archiver=archiver, only=only)
            if bound is not None and done.status == "done" and not done.more:
                with ledger.write() as connection:
                    bounds.spend(connection, bound)
                done.notes.append(f"bounded by what the plan of revision {bound.revision} listed")
            return done

        asked = {"policy": as_row(policy), "applied": applied}
        report = run_once(server, ledger, queue, "trim", run, asked)
    show(context, "trim", report)
    if report["status"] != "done" or report["more"]:
        raise typer.Exit(EXIT_ERROR)

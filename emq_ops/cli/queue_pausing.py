"""``emq-ops queue pause|resume``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.options import DryRun, QueuesArg, Why
from emq_ops.cli.pausing import pause_all
from emq_ops.cli.queues import pick
from emq_ops.passes.acts.declared import PAUSE, RESUME
from emq_ops.protocol.server import Server


def pause(ctx: typer.Context, queues: QueuesArg, why: Why = "", dry_run: DryRun = False) -> None:
    """Stop queues: nothing is claimed from them; what is in flight goes on.

    Recorded with who and why. `plan` shows it as drift where the config says otherwise, and leaves it be.

    Examples:

      emq-ops queue pause orders --why 'payment provider is down'

      emq-ops queue pause 'mail-*' --dry-run
    """
    with _queues_of(ctx, queues) as (context, server, names):
        pause_all(context, server, PAUSE, [(name, "") for name in names], why=why, dry_run=dry_run)


def resume(ctx: typer.Context, queues: QueuesArg, why: Why = "", dry_run: DryRun = False) -> None:
    """Let paused queues go on.

    Examples:

      emq-ops queue resume orders

      emq-ops queue resume 'mail-*' --why 'provider is back'
    """
    with _queues_of(ctx, queues) as (context, server, names):
        pause_all(context, server, RESUME, [(name, "") for name in names], why=why, dry_run=dry_run)


@contextlib.contextmanager
def _queues_of(ctx: typer.Context, queues: Sequence[str]) -> Iterator[tuple[CommandContext, Server, list[str]]]:
    context = CommandContext.of(ctx)
    with context.server("queue") as server:
        yield context, server, pick(context, queues, server)

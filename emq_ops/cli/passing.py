"""What the commands that run passes share: one way through the frame, bounds, and whether the queue is there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import typer

from emq_ops.cli.asking import require
from emq_ops.cli.context import CommandContext
from emq_ops.cli.exits import EXIT_ERROR
from emq_ops.cli.output import say
from emq_ops.cli.progress import bar
from emq_ops.cli.queues import require_queue
from emq_ops.cli.report_tables import format_report
from emq_ops.cli.values import duration_ms
from emq_ops.passes.frame.context import Services
from emq_ops.passes.frame.contract import Pass
from emq_ops.passes.frame.frame import predict_pass
from emq_ops.passes.frame.once import Patience, run_once
from emq_ops.passes.frame.order import Order
from emq_ops.protocol import deadline
from emq_ops.protocol.errors import BadInputError


def with_given(policy: Any, given: Mapping[str, Any]) -> Any:
    """A policy with the flags that were given over it. Raises BadInputError for a value that can't be."""
    changes = {name: value for name, value in given.items() if value is not None}
    return replace(policy, **changes) if changes else policy


@contextlib.contextmanager
def bounded(timeout: str | None) -> Iterator[None]:
    """Everything inside ends within ``--timeout``."""
    ms = duration_ms(timeout, "--timeout")
    if ms == 0:
        raise BadInputError("no time at all", where="--timeout", fix="give a duration such as 30s, or leave it out")
    with contextlib.nullcontext() if ms is None else deadline.deadline(ms / 1000):
        yield


def run_by_hand(
    context: CommandContext,
    what: Pass,
    order: Order,
    *,
    timeout: str | None,
    dry_run: bool,
    yes: bool | None = None,
    question: str = "",
) -> None:
    """Runs a pass once, or foretells it, and shows its report; raises Exit where not all was done that was due. `yes`:
    ``--yes``; None: asked on production alone. `question`: what is asked. Raises BadInputError for a queue that nothing
    names, and where nobody can be asked."""
    queue, kind = order.queue, _KINDS.get(what.name, what.name)
    if what.needs_stores(order.policy) and context.wiring.archive_local is None:
        raise BadInputError("no archive is configured", fix="--local and --remote, or `archive:` in the config")
    if what.protected == "refused" and not dry_run:
        if yes is False:
            require_queue(context, queue)  # before the question
        require(context, question or f"Remove what {what.name} of {queue} lets go?", yes)
    with bounded(timeout), context.server(what.name) as server, contextlib.ExitStack() as stack:
        stores = stack.enter_context(context.stores(look=dry_run))
        services = Services(server, None, stores, context.windows)
        require_queue(context, queue, server, streams=(order.target,) if what.many else ())
        if dry_run:
            services.ledger = stack.enter_context(context.ledger_if_there())
            show(context, kind, predict_pass(services, what, order).report.as_row())
            return
        services.ledger = stack.enter_context(context.ledger())
        progress = stack.enter_context(bar(f"{queue}/{order.target}")) if what.many else None
        asked = replace(order, force=True, progress=progress, failed=lambda report: _show_part(context, kind, report))
        row = run_once(services, what, asked, Patience(tell=lambda line: say(f"emq-ops: {line}")))
    show(context, kind, row)
    if row["status"] != "done" or any(row.get(name) for name in _UNDONE):
        raise typer.Exit(EXIT_ERROR)


_KINDS = {"archive": "fold"}
"""Passes whose command has another name."""
_UNDONE = ("more", "refused", "unstorable", "lag_records")


def _show_part(context: CommandContext, kind: str, report: Any) -> None:
    """What was done before a fault, where anything was."""
    if any(report.counts().values()):
        show(context, kind, report.as_row())


def show(context: CommandContext, kind: str, report: Mapping[str, Any]) -> None:
    """Shows the report of a sweep, trim or fold (`kind`) on stdout, and its notes on stderr."""
    context.emit_one(format_report(kind, report) if context.output == "table" else report)
    where = "/".join(str(report[name]) for name in ("queue", "stream") if report.get(name))
    for note in report.get("notes", ()):
        say(f"emq-ops: {report['queue']}: {note}")
    if report.get("status") == "held":
        say(f"emq-ops: {report['queue']}: nothing was done (emq-ops release {report['queue']})")
    for refusal in report.get("refused", ()):
        say(f"emq-ops: {where}: {refusal}")
    for odd in report.get("unstorable", ()):
        say(f"emq-ops: {where}: record {odd['id']} could not be stored and stays: {odd['reason']}")

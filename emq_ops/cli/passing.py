"""What the commands that run passes share: one way through the frame, bounds, and whether the queue is there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.exits import EXIT_ERROR
from emq_ops.cli.output import say
from emq_ops.cli.progress import bar
from emq_ops.cli.report_tables import format_report
from emq_ops.cli.values import duration_ms
from emq_ops.config.effective import Layers
from emq_ops.ledger import interruptions
from emq_ops.passes.frame.context import Services
from emq_ops.passes.frame.contract import Order, Pass
from emq_ops.passes.frame.frame import predict_pass
from emq_ops.passes.frame.once import Patience, run_once
from emq_ops.passes.frame.refusal import check_protected
from emq_ops.policy.words import nearest
from emq_ops.protocol import deadline
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions.reads import is_there


def with_given(policy: Any, given: Mapping[str, Any]) -> Any:
    """A policy with the flags that were given over it. Raises BadInputError for a value that can't be."""
    changes = {name: value for name, value in given.items() if value is not None}
    return replace(policy, **changes) if changes else policy


@contextlib.contextmanager
def bounded(timeout: str | None) -> Iterator[None]:
    """Everything inside ends within ``--timeout``."""
    ms = duration_ms(timeout, "--timeout")
    with contextlib.nullcontext() if ms is None else deadline.deadline(ms / 1000):
        yield


def is_known(context: CommandContext, queue: str) -> bool:
    """Returns whether the state has ever seen the queue: that the server has it no more is then for a pass to find
    out."""
    with context.ledger_if_there() as ledger:
        return ledger is not None and interruptions.knows(ledger, queue)


def warn_of_absence(context: CommandContext, server: Server, queue: str, *streams: str) -> None:
    """Says so where the server has no such queue (nor `streams` of it) and the config takes none: most likely the name
    is mistyped."""
    if not context.layers.selectors(queue) and not is_there(Queue(server, queue), *streams):
        say(f"emq-ops: {queue}: the server has no such queue{near_of(queue, context.layers, server)}")


def near_of(queue: str, layers: Layers, server: Server) -> str:
    """`` (did you mean 'orders'?)``, where something is near."""
    near = nearest(queue, sorted({*layers.literals, *server.queues()}))
    return f" (did you mean '{near}'?)" if near and near != queue else ""


def run_by_hand(context: CommandContext, what: Pass, order: Order, *, timeout: str | None, dry_run: bool) -> None:
    """Runs a pass once, or foretells it, and shows its report; raises Exit where not all was done that was due. A queue
    that nobody knows is told as such, and nothing runs."""
    queue, kind = order.queue, _KINDS.get(what.name, what.name)
    if what.needs_stores(order.policy) and context.wiring.archive_local is None:
        raise BadInputError("no archive is configured", fix="--local and --remote, or `archive:` in the config")
    with bounded(timeout), context.server(what.name) as server, contextlib.ExitStack() as stack:
        stores = stack.enter_context(context.stores(look=dry_run))
        services = Services(server, None, stores, context.windows)
        if what.many:
            warn_of_absence(context, server, queue, order.target)
        if dry_run:
            services.ledger = stack.enter_context(context.ledger_if_there())
            show(context, kind, predict_pass(services, what, order).report.as_row())
            return
        if not what.many and not is_there(Queue(server, queue)) and not is_known(context, queue):
            check_protected(what, order)
            say(f"emq-ops: {queue}: the server has no such queue{near_of(queue, context.layers, server)}")
            show(context, kind, what.loaded.report(order).as_row())
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
    for refusal in report.get("refused", ()):
        say(f"emq-ops: {where}: {refusal}")
    for odd in report.get("unstorable", ()):
        say(f"emq-ops: {where}: record {odd['id']} could not be stored and stays: {odd['reason']}")

"""What the commands that run passes share: one way through the frame, bounds, and whether the queue is there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import typer

from emq_ops.cli.asking import require
from emq_ops.cli.config import value_rows
from emq_ops.cli.context import CommandContext
from emq_ops.cli.exits import EXIT_ERROR
from emq_ops.cli.many import QueueTurns, several
from emq_ops.cli.output import say
from emq_ops.cli.progress import bar
from emq_ops.cli.report_tables import columns_of, format_report
from emq_ops.cli.streams import targets_of
from emq_ops.cli.table import look
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


@dataclass(frozen=True, slots=True)
class ByHand:
    """How a command line wants a pass run. `order_of`: what is asked of a queue (and stream); `yes`: ``--yes``; None:
    asked on production alone; `question`: what is asked, with the queues in the place of {}."""

    order_of: Callable[[str, str], Order]
    timeout: str | None
    dry_run: bool
    yes: bool | None = None
    question: str = ""


def run_by_hand(context: CommandContext, what: Pass, selectors: Sequence[str], hand: ByHand, streams: str = "") -> None:
    """Runs a pass once on each of the queues (and `streams` of them), or foretells it, and shows the reports; raises
    Exit where not all was done that was due. Raises BadInputError for a queue that nothing names, and where nobody can
    be asked."""
    with context.server(what.name) as server, contextlib.ExitStack() as stack:
        with bounded(hand.timeout):
            refs = targets_of(context, selectors, streams, server)
        orders = [hand.order_of(queue, stream) for queue, stream in refs]
        if any(what.needs_stores(order.policy) for order in orders) and context.wiring.archive_local is None:
            raise BadInputError("no archive is configured", fix="--local and --remote, or `archive:` in the config")
        if what.protected == "refused" and not hand.dry_run:
            names = orders[0].queue if len(orders) == 1 else f"{len(orders)} queues"
            require(context, (hand.question or f"Remove what {what.name} of {{}} lets go?").format(names), hand.yes)
        stack.enter_context(bounded(hand.timeout))
        services = Services(server, None, stack.enter_context(context.stores(look=hand.dry_run)), context.windows)
        if hand.dry_run:
            services.ledger = stack.enter_context(context.ledger_if_there())
        else:
            services.ledger = stack.enter_context(context.ledger())
        kind = KINDS.get(what.name, what.name)
        turns = stack.enter_context(QueueTurns(context, columns_of(kind), many=several((*selectors, streams), refs)))
        for order in orders:
            with turns.turn():
                if look.verbose:
                    _say_policy(context, what, order)
                _run_one(services, what, order, hand, turns)


def _say_policy(context: CommandContext, what: Pass, order: Order) -> None:
    """Why a run does what it does: its policy, and the line that each value comes from."""
    section = what.section + (f".{order.target}" if what.many else "")
    for row in value_rows(context.layers.effective(order.queue)):
        if str(row["path"]).startswith(f"{section}."):
            say(f"{order.queue}: {row['path']} {row['value']} ({row['from']})")
    if not order.applied:
        say(f"{order.queue}: its bounds are those of the command line")


def _run_one(services: Services, what: Pass, order: Order, hand: ByHand, turns: QueueTurns) -> None:
    kind = KINDS.get(what.name, what.name)
    if hand.dry_run:
        show(turns, kind, predict_pass(services, what, order).report.as_row())
        return
    with bar(f"{order.queue}/{order.target}" if what.many else f"{kind} {order.queue}") as progress:
        asked = replace(order, force=True, progress=progress, failed=lambda report: _show_part(turns, kind, report))
        row = run_once(services, what, asked, Patience(tell=lambda line: say(f"emq-ops: {line}")))
    show(turns, kind, row)
    if row["status"] != "done" or any(row.get(name) for name in _UNDONE):
        raise typer.Exit(EXIT_ERROR)


KINDS = {"archive": "fold"}
"""Passes whose command has another name."""
_UNDONE = ("more", "refused", "unstorable", "lag_records")


def _show_part(turns: QueueTurns, kind: str, report: Any) -> None:
    """What was done before a fault, where anything was."""
    if any(report.counts().values()):
        show(turns, kind, report.as_row())


def show(turns: QueueTurns, kind: str, report: Mapping[str, Any]) -> None:
    """Shows the report of a sweep, trim or fold (`kind`) on stdout, and its notes on stderr."""
    turns.add(report, None if turns.many else format_report(kind, report))
    where = "/".join(str(report[name]) for name in ("queue", "stream") if report.get(name))
    for note in report.get("notes", ()):
        say(f"emq-ops: {report['queue']}: {note}")
    if report.get("status") == "held":
        say(f"emq-ops: {report['queue']}: nothing was done (emq-ops release {report['queue']})")
    for refusal in report.get("refused", ()):
        say(f"emq-ops: {where}: {refusal}")
    for odd in report.get("unstorable", ()):
        say(f"emq-ops: {where}: record {odd['id']} could not be stored and stays: {odd['reason']}")

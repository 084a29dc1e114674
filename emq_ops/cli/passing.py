"""What the commands that run passes share: bounds, and whether the queue that they name is there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from emq_ops.cli.context import CommandContext
from emq_ops.cli.output import say
from emq_ops.cli.report_tables import format_report
from emq_ops.cli.values import duration_ms
from emq_ops.config.effective import Layers
from emq_ops.ledger import interruptions
from emq_ops.policy.words import nearest
from emq_ops.protocol import deadline
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


def show(context: CommandContext, kind: str, report: Mapping[str, Any]) -> None:
    """Shows the report of a sweep, trim or fold (`kind`) on stdout, and its notes on stderr."""
    context.emit_one(format_report(kind, report) if context.output == "table" else report)
    for note in report.get("notes", ()):
        say(f"emq-ops: {report['queue']}: {note}")

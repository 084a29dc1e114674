"""``emq-ops config``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.options import new_app
from emq_ops.cli.output import emit_one, say
from emq_ops.config.effective import Effective, Layers
from emq_ops.policy.words import nearest
from emq_ops.protocol.keyspace import queue_name
from emq_ops.syntax.errors import BUILT_IN, Position

app = new_app("The config, as it holds.")


@app.callback(no_args_is_help=True)
def config() -> None:
    """The config, as it holds."""


@app.command()
def show(ctx: typer.Context, queue: str = typer.Argument(..., help="A queue, whether it exists or not.")) -> None:
    """Print what holds for a queue, and the line that each value comes from."""
    context = CommandContext.of(ctx)
    layers = Layers(context.require_config())
    effective = layers.effective(queue_name(queue))
    if not layers.selectors(queue):
        near = nearest(queue, layers.literals)
        hint = f" (did you mean '{near}'?)" if near else ""
        say(f"emq-ops: no entry under `queues` takes '{queue}': nothing runs on it; these are the defaults{hint}")
    if context.output == "json":
        emit_one(
            {
                "queue": effective.queue,
                "entries": ["defaults", *effective.selectors],
                "values": [{"path": v.path, "value": v.value, "from": _place(v.mark)} for v in effective.values()],
            },
            "json",
        )
        return
    context.emit_rows(value_rows(effective), ("path", "value", "from"))


def value_rows(effective: Effective) -> list[dict[str, Any]]:
    """What holds for a queue, a row a value, each with the place that says it."""
    return [{"path": v.path, "value": _yaml(v.value), "from": _place(v.mark)} for v in effective.values()]


def _yaml(value: Any) -> Any:
    """A truth value as the file takes it."""
    return str(value).lower() if isinstance(value, bool) else value


def _place(mark: Position) -> str:
    return mark.file if mark is BUILT_IN or not mark.line else f"{Path(mark.file)}:{mark.line}"

"""``emq-ops config``."""

from __future__ import annotations

from pathlib import Path

import typer

from emq_ops.cli.context import globals_of, new_app
from emq_ops.cli.output import emit_one, emit_rows
from emq_ops.cli.settings import required
from emq_ops.config.effective import Layers
from emq_ops.config.errors import BUILT_IN, Mark
from emq_ops.protocol.keyspace import queue_name

app = new_app("The config, as it holds.")


@app.callback()
def config() -> None:
    """The config, as it holds."""


@app.command()
def show(ctx: typer.Context, queue: str = typer.Argument(..., help="A queue, whether it exists or not.")) -> None:
    """Print what holds for a queue, and the line that each value comes from."""
    options = globals_of(ctx)
    effective = Layers(required(options)).effective(queue_name(queue))
    if options.output == "json":
        emit_one(
            {
                "queue": effective.queue,
                "entries": ["defaults", *effective.selectors],
                "values": [{"path": v.path, "value": v.value, "from": _place(v.mark)} for v in effective.values()],
            },
            "json",
        )
        return
    rows = [{"path": v.path, "value": v.value, "from": _place(v.mark)} for v in effective.values()]
    emit_rows(rows, options.output, ("path", "value", "from"))


def _place(mark: Mark) -> str:
    return mark.file if mark is BUILT_IN or not mark.line else f"{Path(mark.file)}:{mark.line}"

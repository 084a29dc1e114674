"""``emq-ops config``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.many import several
from emq_ops.cli.options import new_app
from emq_ops.cli.output import emit_one, say
from emq_ops.config.effective import Effective, Layers
from emq_ops.policy.words import nearest
from emq_ops.protocol.errors import BadInputError, one_line
from emq_ops.protocol.globs import is_glob, literal, select
from emq_ops.protocol.keyspace import queue_name
from emq_ops.syntax.errors import BUILT_IN, Position

app = new_app("The config, as it holds.")


@app.callback(no_args_is_help=True)
def config() -> None:
    """The config, as it holds."""


@app.command()
def show(
    ctx: typer.Context,
    queues: Annotated[
        list[str],
        typer.Argument(help="Queues, whether they exist or not; globs of those of the file.", metavar="QUEUE"),
    ],
) -> None:
    """Print what holds for queues, and the line that each value comes from.

    Examples:

      emq-ops config show orders

      emq-ops config show 'mail-*' --output csv
    """
    context = CommandContext.of(ctx)
    layers = Layers(context.require_config())
    names = _named(layers, queues)
    many = several(queues, names)
    rows: list[dict[str, Any]] = []
    for queue in names:
        effective = layers.effective(queue)
        if not layers.selectors(queue):
            near = nearest(queue, layers.literals)
            hint = f" (did you mean '{near}'?)" if near else ""
            say(f"emq-ops: no entry under `queues` takes '{queue}': nothing runs on it; these are the defaults{hint}")
        if context.output == "json":
            values = [{"path": v.path, "value": v.value, "from": _place(v.mark)} for v in effective.values()]
            rows.append({"queue": queue, "entries": ["defaults", *effective.selectors], "values": values})
        else:
            rows += [{"queue": queue, **row} for row in value_rows(effective)]
    if context.output == "json" and not many:
        emit_one(rows[0], "json")
    else:
        context.emit_rows(rows, (*(("queue",) if many else ()), "path", "value", "from"))


def _named(layers: Layers, selectors: list[str]) -> list[str]:
    """The queues that are named, and those of the file that globs take. Raises BadInputError for a glob without."""
    out: list[str] = []
    for selector in (part for one in selectors for part in ([one] if one in layers.literals else one.split(","))):
        found = select(selector, layers.literals)
        if not found and is_glob(selector):
            raise BadInputError(f"no queue of the config matches '{one_line(selector[:80])}'")
        out += found or [queue_name(literal(selector))]
    return list(dict.fromkeys(out))


def value_rows(effective: Effective) -> list[dict[str, Any]]:
    """What holds for a queue, a row a value, each with the place that says it."""
    return [{"path": v.path, "value": _yaml(v.value), "from": _place(v.mark)} for v in effective.values()]


def _yaml(value: Any) -> Any:
    """A truth value as the file takes it."""
    return str(value).lower() if isinstance(value, bool) else value


def _place(mark: Position) -> str:
    return mark.file if mark is BUILT_IN or not mark.line else f"{Path(mark.file)}:{mark.line}"

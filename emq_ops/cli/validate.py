"""``emq-ops validate``."""

from __future__ import annotations

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.exits import EXIT_BAD_INPUT
from emq_ops.cli.options import new_app
from emq_ops.cli.output import counted, say
from emq_ops.config.effective import Layers
from emq_ops.config.hosts import strange_hosts
from emq_ops.config.loader import Loaded, unset_references
from emq_ops.config.wiring import Wiring
from emq_ops.syntax.errors import SourceError

app = new_app()


@app.command()
def validate(
    ctx: typer.Context,
    allow_unset: bool = typer.Option(False, "--allow-unset", help="Environment variables may be unset here."),
) -> None:
    """Check the config: every fault in a line of its own. Connects to nothing, and reads no variable's value.

    Examples:

      emq-ops validate

      emq-ops validate -c base.yaml -c prod.yaml
    """
    context = CommandContext.of(ctx)
    faults: list[SourceError] = []
    try:
        loaded = context.look_at_config()
        layers = Layers(loaded)
        layers.check()
        faults = strange_hosts(loaded, Wiring.of(loaded))
        faults += [] if allow_unset else unset_references(loaded.tree, loaded.env)
        faults += _of_flags(context, loaded)
    except SourceError as fault:
        faults = [fault]
    for found in faults:
        for line in found.lines():
            say(f"emq-ops: {line}")
    if faults:
        raise typer.Exit(EXIT_BAD_INPUT)
    row = {
        "files": [str(source.path) for source in loaded.sources],
        "queues": layers.literals,
        "globs": layers.patterns,
        "sha256": loaded.sha256,
    }
    context.emit_one(row)
    say(f"emq-ops: no fault; {counted(len(layers.literals), 'queue')} and {counted(len(layers.patterns), 'glob')}")


_FLAGGED = {"url": "server_url", "state": "state_url", "local": "archive_local", "remote": "archive_remote"}
"""Which place each of the command line's URLs is."""


def _of_flags(context: CommandContext, loaded: Loaded) -> list[SourceError]:
    """What is wrong with the URLs of the command line."""
    wiring, found = context.wiring_of(loaded), []
    for option, place in _FLAGGED.items():
        if getattr(context.options, option) is not None:
            try:
                getattr(wiring, place)
            except SourceError as fault:
                found.append(fault)
    return found

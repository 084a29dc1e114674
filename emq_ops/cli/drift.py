"""``emq-ops drift``."""

from __future__ import annotations

import typer

from emq_ops.cli.context import globals_of, new_app
from emq_ops.cli.deploying import session_of
from emq_ops.cli.exits import EXIT_CHANGES
from emq_ops.cli.output import emit_rows, say
from emq_ops.deploy.render import value

app = new_app()


@app.command()
def drift(ctx: typer.Context) -> None:
    """Say where the live server is not what was applied. Exit 0: nowhere, 2: somewhere."""
    options = globals_of(ctx)
    with session_of(options, "drift") as session:
        found = session.drift()
        applied = session.current()
    as_text = options.output in ("table", "csv")
    rows = [
        {
            "address": d.address,
            "queue": d.queue,
            "setting": d.setting,
            "applied": value(d.applied) if as_text else d.applied,
            "live": value(d.live) if as_text else d.live,
        }
        for d in found
    ]
    if rows or options.output != "table":
        emit_rows(rows, options.output, ("address", "applied", "live"))
    if applied is None:
        say("emq-ops: nothing was applied yet")
    elif not rows:
        say(f"emq-ops: no drift from revision {applied.number}")
    if rows:
        raise typer.Exit(EXIT_CHANGES)

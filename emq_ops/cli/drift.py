"""``emq-ops drift``."""

from __future__ import annotations

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.deploying import deployment_of
from emq_ops.cli.exits import EXIT_CHANGES
from emq_ops.cli.options import new_app
from emq_ops.cli.output import say
from emq_ops.deploy.render import value

app = new_app()


@app.command()
def drift(ctx: typer.Context) -> None:
    """Say where the live server is not what was applied. Exit 0: nowhere, 2: somewhere.

    Examples:

      emq-ops drift

      emq-ops drift --output json
    """
    context = CommandContext.of(ctx)
    with deployment_of(context, "drift", look=True) as session:
        found = session.drift()
        applied = session.current()
    as_text = context.output in ("table", "csv")
    rows = [
        {
            "address": d.address,
            "queue": d.queue,
            "setting": d.setting,
            "applied": value(d.applied) if as_text else d.applied,
            "live": value(d.live) if as_text else d.live,
            **({"lost": True} if d.lost else {}),
        }
        for d in found
    ]
    if rows or context.output != "table":
        context.emit_rows(rows, ("address", "applied", "live"))
    if applied is None:
        say("emq-ops: nothing was applied yet")
    elif not rows:
        say(f"emq-ops: no drift from revision {applied.number}")
    if lost := sum(d.lost for d in found):
        say(f"emq-ops: {lost} of them were lost with the server's data; `emq-ops apply` puts them back")
    if rows:
        raise typer.Exit(EXIT_CHANGES)

"""``emq-ops conformance``."""

from __future__ import annotations

import typer

from emq_ops.cli.context import new_app

app = new_app()


@app.command()
def conformance(
    ctx: typer.Context, files: list[str] = typer.Argument(..., help="Files of recorded transitions.")
) -> None:
    """Replay recorded transitions against a server and compare replies and whole keyspaces."""


"""``emq-ops conformance``: does a server build, with its modules, speak the wire as it was recorded?"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.options import new_app
from emq_ops.protocol.conformance.replay import read_vectors, replay_all
from emq_ops.protocol.server import Server, connect

app = new_app()


@contextlib.contextmanager
def _server(url: str | None) -> Iterator[Server]:
    """The server named, else an embedded one of our own that goes afterwards."""
    if url is not None:
        with connect(url) as server:
            yield server
        return
    # The server's watcher may still be tidying up when the folder goes.
    with (
        tempfile.TemporaryDirectory(prefix="emq-", ignore_cleanup_errors=True) as folder,
        connect(f"embedded:{folder}") as server,
    ):
        server.write("CONFIG", "SET", "appendonly", "no")  # nothing here is worth a disk
        yield server


@app.command()
def conformance(
    ctx: typer.Context,
    files: Annotated[list[Path], typer.Argument(help="Files of recorded transitions.", metavar="FILE")],
) -> None:
    """Replay recorded transitions against a server and compare replies and whole keyspaces.

    Refuses a server that holds keys. Exit 0 only if every transition agrees.

    Examples:

      emq-ops conformance transitions.json

      emq-ops conformance transitions.json --url redis://localhost:7000
    """
    context = CommandContext.of(ctx)
    vectors = [vector for path in files for vector in read_vectors(path)]
    agreeing = 0
    rows = []
    with _server(context.options.url) as server:
        for verdict in replay_all(server, vectors):
            agreeing += verdict.agrees
            rows.append({"vector": verdict.vector, "agrees": verdict.agrees, "differences": verdict.lines})
            if not verdict.agrees and context.output == "table":
                typer.echo("\n".join([verdict.vector, *(f"  {line}" for line in verdict.lines)]))
    if context.output != "table":
        context.emit_rows(rows, ["vector", "agrees", "differences"])
    typer.echo(f"{agreeing} of {len(vectors)} transitions agree", err=context.output != "table")
    if agreeing != len(vectors):
        raise typer.Exit(1)

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
from emq_ops.protocol.conformance.deliberate import Difference, deliberate
from emq_ops.protocol.conformance.replay import CALLS as BASIC
from emq_ops.protocol.conformance.replay import Replayed, read_vectors, replay_all
from emq_ops.protocol.server import Server, connect
from emq_ops.worker.conformance import CALLS as WORKERS

app = new_app()
CALLS = {**BASIC, **WORKERS}


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

    Where emq-ops differs from the reference on purpose (`docs/protocol.md` lists it), that is said with the reason.
    Refuses a server that holds keys. Exit 0 only if every transition agrees, or differs on purpose.

    Examples:

      emq-ops conformance operations.json

      emq-ops conformance transitions.json operations.json --url redis://localhost:6390 --output jsonl
    """
    context = CommandContext.of(ctx)
    vectors = [vector for path in files for vector in read_vectors(path, CALLS)]
    agreeing = meant = 0
    rows = []
    with _server(context.options.url) as server:
        for vector, verdict in zip(vectors, replay_all(server, vectors, CALLS), strict=True):
            why = None if verdict.agrees else deliberate(vector, verdict)
            agreeing, meant = agreeing + verdict.agrees, meant + (why is not None)
            row = {"vector": verdict.vector, "agrees": verdict.agrees, "differences": verdict.lines}
            rows.append({**row, "on_purpose": why.name if why else None, "reason": why.why if why else None})
            if not verdict.agrees and context.output == "table":
                typer.echo("\n".join(_told(verdict, why)))
    if context.output != "table":
        context.emit_rows(rows, ["vector", "agrees", "on_purpose", "differences", "reason"])
    more = f", {meant} differ on purpose" if meant else ""
    typer.echo(f"{agreeing} of {len(vectors)} transitions agree{more}", err=context.output != "table")
    if agreeing + meant != len(vectors):
        raise typer.Exit(1)


def _told(verdict: Replayed, why: Difference | None) -> list[str]:
    """What is said of one that disagrees: its diff, or why that is meant to be so."""
    if why is None:
        return [verdict.vector, *(f"  {line}" for line in verdict.lines)]
    return [f"{verdict.vector} differs on purpose: {why.name}: {why.what} (else {why.why})"]

"""``emq-ops import``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.options import new_app
from emq_ops.cli.output import emit_one, say
from emq_ops.cli.values import file_of
from emq_ops.deploy.importer import as_yaml, read_queues
from emq_ops.policy.secrets import hide
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.files import create_privately

app = new_app()


@app.command("import")
def import_(
    ctx: typer.Context,
    queues: Annotated[
        list[str] | None, typer.Argument(metavar="QUEUE", help="Names or globs; none: every queue.")
    ] = None,
    out: str | None = typer.Option(None, "--out", metavar="FILE", help="A new file instead of stdout."),
) -> None:
    """Write a config from the settings that stand on a live server."""
    context = CommandContext.of(ctx)
    wiring = context.places
    with wiring.connect("import") as server:
        entries, left_out = read_queues(server, queues or [])
    for line in left_out:
        say(f"emq-ops: left out: {line}")
    if context.output == "json":
        emit_one({"queues": entries, "left_out": left_out}, "json")
        return
    url = str(wiring.server["url"])
    shown = url if hide(url) == url else None
    text = as_yaml(entries, shown)
    if shown is None:
        say("emq-ops: left out: server.url, since it holds a secret; write it with ${NAME} in its place")
    if out is None:
        sys.stdout.write(text)
        return
    try:
        with open(create_privately(file_of(out)), "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as fault:
        raise BadInputError(f"can't write: {fault.strerror}", where=out, fix="name a new file") from None
    say(f"emq-ops: wrote {out}")

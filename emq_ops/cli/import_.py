"""``emq-ops import``."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.options import new_app
from emq_ops.cli.output import emit_one, say
from emq_ops.cli.values import file_of
from emq_ops.config.models import ArchiveSection, RemoteSection, Section, ServerSection, StateSection
from emq_ops.config.wiring import Wiring
from emq_ops.deploy.importer import as_yaml, managers, read_queues
from emq_ops.ledger.ownership import Lineage
from emq_ops.policy.options import written
from emq_ops.policy.secrets import hide
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.files import create_privately

app = new_app()


def _places(wiring: Wiring) -> dict[str, Any]:
    """The sections that say where everything is: as the config has them, references as written; a URL with a secret in
    it becomes a reference."""

    def section(name: str, said: dict[str, Any], usual: Section) -> dict[str, Any]:
        known, out = written(usual), {}
        for key, value in said.items():
            if isinstance(value, dict):
                value = section(f"{name}.{key}", value, RemoteSection())
            elif key in ("url", "local") and hide(str(value)) != str(value):
                variable = f"EMQ_OPS_{name.replace('.', '_').upper()}_{key.upper()}"
                say(f"emq-ops: {name}.{key} holds a secret: set {variable} to it")
                value = f"${{{variable}}}"
            if value not in (None, {}) and (key in ("url", "local") or value != known.get(key)):
                out[key] = value
        return out

    return {
        "server": section("server", wiring.server, ServerSection()),
        "state": section("state", wiring.state, StateSection()),
        "archive": section("archive", wiring.archive or {}, ArchiveSection()),
    }


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
    with wiring.connect("import") as server, context.ledger_if_there() as ledger:
        entries, left_out = read_queues(server, queues or [])
        others = managers(server, entries, Lineage(ledger).states if ledger is not None else ())
    for state, names in others.items():
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        say(
            f"emq-ops: {', '.join(names[:3])}{more} belong to state {state}: name its database as state.url, or, if it "
            f"is gone for good: emq-ops state take-over {state}"
        )
    for line in left_out:
        say(f"emq-ops: left out: {line}")
    if context.output == "json":
        emit_one({"queues": entries, "left_out": left_out}, "json")
        return
    text = as_yaml(entries, None, _places(wiring))
    if out is None:
        sys.stdout.write(text)
        return
    try:
        with open(create_privately(file_of(out)), "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as fault:
        raise BadInputError(f"can't write: {fault.strerror}", where=out, fix="name a new file") from None
    say(f"emq-ops: wrote {out}")

"""``emq-ops import``."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.options import new_app
from emq_ops.cli.output import emit_one, say
from emq_ops.cli.progress import bar
from emq_ops.cli.values import file_of
from emq_ops.config.models import ArchiveSection, RemoteSection, Section, ServerSection, StateSection
from emq_ops.config.wiring import Wiring
from emq_ops.deploy.imported import over_revision
from emq_ops.deploy.importer import as_yaml, managers, read_queues, revision_yaml
from emq_ops.deploy.store import revisions
from emq_ops.deploy.store.revisions import Revision
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
    """Write a config from the settings that stand on a live server.

    Examples:

      emq-ops import > imported.yaml

      emq-ops import 'mail-*' --out imported.yaml
    """
    context = CommandContext.of(ctx)
    wiring = context.places
    with wiring.connect("import") as server, context.ledger_if_there() as ledger:
        with bar("import") as progress:
            entries, left_out = read_queues(server, queues or [], progress)
        others = managers(server, entries, Lineage(ledger).states if ledger is not None else ())
        applied = revisions.current(ledger) if ledger is not None else None
    for state, names in others.items():
        say(
            f"emq-ops: {_some(names)} belong to state {state}: name its database as state.url, or, if it "
            f"is gone for good: emq-ops state take-over {state}"
        )
    text = as_yaml(entries, None, _places(wiring)) if applied is None else _revised(applied, entries, wiring, left_out)
    gone = [name for name in applied.document.queues if name not in entries] if applied and not queues else []
    if gone:
        are = "is not on the server: it is" if len(gone) == 1 else "are not on the server: they are"
        say(f"emq-ops: {_some(gone)} {are} in the file as in the revision")
    for line in left_out:
        say(f"emq-ops: left out: {line}")
    if context.output == "json":
        emit_one({"queues": entries, "left_out": left_out}, "json")
        return
    if out is None:
        sys.stdout.write(text)
        return
    try:
        with open(create_privately(file_of(out)), "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as fault:
        raise BadInputError(f"can't write: {fault.strerror}", where=out, fix="name a new file") from None
    say(f"emq-ops: wrote {out}")
    if file_of(out).absolute().parent.resolve() != wiring.base.resolve():
        say(f"emq-ops: places that it does not name start from {wiring.base}: put it there")


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _revised(applied: Revision, entries: dict[str, Any], wiring: Wiring, left_out: list[str]) -> str:
    """The file where the state has a revision: without what that says of policies, a plan of the file would take them
    away."""
    document = applied.document
    imported = over_revision(document, entries, wiring.env, left_out)
    if document.wiring(wiring.env).server.get("url") != wiring.server.get("url"):
        say(f"emq-ops: the file names the server as revision {applied.number} does: give --url with it, as now")
    return revision_yaml(document, applied.number, entries, _places(wiring), imported)

"""``emq-ops history``."""

from __future__ import annotations

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.options import new_app
from emq_ops.deploy.model import instant
from emq_ops.deploy.store import revisions

app = new_app()


@app.command()
def history(ctx: typer.Context, limit: int = typer.Option(50, "--limit", min=1, help="How many.")) -> None:
    """List the revisions, newest first.

    Examples:

      emq-ops history

      emq-ops history --limit 5
    """
    context = CommandContext.of(ctx)
    with context.ledger_alone() as ledger:
        heads = revisions.history(ledger, limit)
    rows = [
        {
            "revision": head.number,
            "made": instant(head.made_ms),
            "kind": head.kind,
            "who": head.who,
            "added": head.summary.get("add", 0),
            "changed": head.summary.get("change", 0),
            "removed": head.summary.get("remove", 0),
            "files": ", ".join(f"{f['path']} {f['sha256'][:12]}" for f in head.files)
            if context.output in ("table", "csv")
            else head.files,
            "sha256": head.sha256,
            "why": head.why,
        }
        for head in heads
    ]
    context.emit_rows(rows, ("revision", "made", "kind", "who", "added", "changed", "removed", "files", "why"))

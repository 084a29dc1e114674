"""``emq-ops destroy``."""

from __future__ import annotations

from typing import Annotated

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.deploying import carry_out, deployment_of
from emq_ops.cli.options import ShowPlan, Why, Yes, new_app
from emq_ops.cli.output import say
from emq_ops.cli.queues import require_queue
from emq_ops.deploy.document import Document
from emq_ops.protocol import globs
from emq_ops.protocol.errors import BadInputError

app = new_app()


@app.command()
def destroy(
    ctx: typer.Context,
    queues: Annotated[
        list[str] | None, typer.Argument(metavar="QUEUE", help="Names or globs; none: everything.")
    ] = None,
    why: Why = "",
    yes: Yes = False,
    dry_run: ShowPlan = False,
) -> None:
    """Take the schedules away. Jobs, streams, archives and the settings on the server stay as they are.

    Examples:

      emq-ops destroy orders --dry-run

      emq-ops destroy 'mail-*' --yes
    """
    context = CommandContext.of(ctx)
    with deployment_of(context, "destroy") as session:
        for selector in queues or ():
            if not globs.is_glob(selector):
                require_queue(context, globs.literal(selector), session.server)
        applied = session.current()
        if applied is None:
            say("emq-ops: nothing was applied yet")
            return
        wanted = without(applied.document, queues) if queues else Document.empty(applied.document.data["base"])
        proposal = session.propose_document(wanted, "destroy")
        code = carry_out(session, proposal, context, yes=yes, dry_run=dry_run, allow_loss=True, why=why)
    raise typer.Exit(code)


def without(document: Document, selectors: list[str]) -> Document:
    """`document` without the queues that are selected. Raises BadInputError for a selector that takes none."""
    gone: set[str] = set()
    for selector in selectors:
        found = globs.select(selector, document.queues)
        if not found:
            raise BadInputError(f"'{selector}' takes no applied queue", fix="see `emq-ops show`")
        gone.update(found)
    queues = {name: entry for name, entry in document.queues.items() if name not in gone}
    return Document({**document.data, "queues": queues})

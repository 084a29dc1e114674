"""``emq-ops rollback``."""

from __future__ import annotations

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.deploying import carry_out, deployment_of
from emq_ops.cli.options import AllowLoss, ShowPlan, Why, Yes, new_app
from emq_ops.deploy.store.revisions import revision

app = new_app()


@app.command()
def rollback(
    ctx: typer.Context,
    number: int = typer.Argument(..., metavar="REV", help="The revision to go back to."),
    allow_loss: AllowLoss = False,
    why: Why = "",
    yes: Yes = False,
    dry_run: ShowPlan = False,
) -> None:
    """Go back to an earlier revision: its content becomes a new one.

    Examples:

      emq-ops rollback 3 --dry-run

      emq-ops rollback 3 --why 'back to friday' --yes
    """
    context = CommandContext.of(ctx)
    with deployment_of(context, "rollback") as session:
        proposal = session.propose_document(revision(session.ledger, number).document, "rollback")
        word = why or f"back to revision {number}"
        code = carry_out(session, proposal, context, yes=yes, dry_run=dry_run, allow_loss=allow_loss, why=word)
    raise typer.Exit(code)

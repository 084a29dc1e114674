"""``emq-ops apply``."""

from __future__ import annotations

from typing import Annotated

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.deploying import carry_out, deployment_of
from emq_ops.cli.looking import look, require_folder
from emq_ops.cli.options import AllowLoss, ShowPlan, Why, Yes, new_app
from emq_ops.cli.values import file_of
from emq_ops.deploy.deployment import require_set
from emq_ops.protocol.errors import BadInputError

app = new_app()


@app.command()
def apply(
    ctx: typer.Context,
    saved: str | None = typer.Argument(None, metavar="PLAN", help="A plan that `plan --save` kept."),
    plan: str | None = typer.Option(None, "--plan", metavar="FILE", help="The same as the argument."),
    revert: Annotated[
        list[str] | None, typer.Option("--revert", metavar="NAME", help="Put drift back; or `all`.")
    ] = None,
    allow_loss: AllowLoss = False,
    why: Why = "",
    yes: Yes = False,
    offline: bool = typer.Option(False, "--offline", help="Without a look at the archive's database and store."),
    dry_run: ShowPlan = False,
) -> None:
    """Show the plan, ask, and do it: settings on the server, then one revision."""
    context = CommandContext.of(ctx)
    if saved is not None and plan is not None and saved != plan:
        raise BadInputError("two saved plans", fix="name one of them")
    file = saved if saved is not None else plan
    if file is not None and revert:
        raise BadInputError("--revert with a saved plan", fix="give --revert to `emq-ops plan --save`")
    loaded = context.require_config()
    require_set(loaded)
    require_folder(context.wiring.state_url, context.wiring.base)
    with deployment_of(context, "apply", look=dry_run) as opened:
        held = look(opened, context, offline=offline, tell=lambda _line: None)
        if file is not None:
            proposal, yes = opened.load(file_of(file), loaded), True
        else:
            proposal = opened.propose(loaded, revert or [], store=held)
        code = carry_out(opened, proposal, context, yes=yes, dry_run=dry_run, allow_loss=allow_loss, why=why)
    raise typer.Exit(code)

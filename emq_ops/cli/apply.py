"""``emq-ops apply``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.deploying import carry_out, deployment_of
from emq_ops.cli.looking import look, require_folder
from emq_ops.cli.options import AllowLoss, Rules, ShowPlan, Target, Why, Yes, new_app
from emq_ops.cli.output import say
from emq_ops.cli.progress import bar
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
    target: Target = None,
    rules: Rules = None,
    resume: Annotated[bool, typer.Option("--resume", help="Only where an apply was cut off.")] = False,
    allow_loss: AllowLoss = False,
    why: Why = "",
    yes: Yes = False,
    offline: bool = typer.Option(False, "--offline", help="Without a look at the archive's database and store."),
    dry_run: ShowPlan = False,
) -> None:
    """Show the plan, ask, and do it: settings on the server, then one revision.

    An apply that was killed is taken up by the next one: what it wrote stands, the rest is done. --resume does that and
    nothing else.

    Examples:

      emq-ops apply --why 'more dead kept'

      emq-ops apply --target 'mail-*' --yes
    """
    context = CommandContext.of(ctx)
    if saved is not None and plan is not None and saved != plan:
        raise BadInputError("two saved plans", fix="name one of them")
    file = saved if saved is not None else plan
    if file is not None and revert:
        raise BadInputError("--revert with a saved plan", fix="give --revert to `emq-ops plan --save`")
    if file is not None and (target or rules):
        raise BadInputError("--target or --rules with a saved plan", fix="give them to `emq-ops plan --save`")
    loaded = context.require_config()
    require_set(loaded)
    require_folder(context.wiring.state_url, context.wiring.base)
    with deployment_of(context, "apply", look=dry_run) as opened:
        cut, _ = opened.standing()
        if cut is not None:
            say(f"emq-ops: the apply of {cut.holder} was cut off in step {cut.step} of {cut.steps}: this one goes on")
        elif resume:
            say("emq-ops: no apply was cut off: there is nothing to resume (apply goes on by itself after a kill)")
            return
        held = look(opened, context, offline=offline, tell=lambda _line: None)
        if file is not None:
            proposal, yes = opened.load(file_of(file), loaded), True
        else:
            with bar("plan"):
                proposal = opened.propose(
                    loaded, revert or [], target=target or (), rules=[Path(one) for one in rules or ()], store=held
                )
        code = carry_out(opened, proposal, context, yes=yes, dry_run=dry_run, allow_loss=allow_loss, why=why)
    raise typer.Exit(code)

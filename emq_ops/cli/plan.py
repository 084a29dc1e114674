"""``emq-ops plan``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.deploying import deployment_of, show_plan
from emq_ops.cli.exits import EXIT_CHANGES
from emq_ops.cli.looking import look
from emq_ops.cli.options import Rules, Target, new_app
from emq_ops.cli.output import say
from emq_ops.cli.progress import bar
from emq_ops.cli.risks import tell_risks
from emq_ops.cli.values import file_of
from emq_ops.deploy.apply import check
from emq_ops.deploy.deployment import require_set
from emq_ops.deploy.offline import plan_offline
from emq_ops.deploy.saved import key_of
from emq_ops.protocol.errors import BadInputError

app = new_app()


@app.command()
def plan(
    ctx: typer.Context,
    save: str | None = typer.Option(None, "--save", metavar="FILE", help="Keep the plan, to apply exactly this."),
    revert: Annotated[
        list[str] | None, typer.Option("--revert", metavar="NAME", help="Put drift back; or `all`.")
    ] = None,
    target: Target = None,
    rules: Rules = None,
    offline: bool = typer.Option(False, "--offline", help="From the file alone: nothing is resolved or asked."),
    markdown: bool = typer.Option(False, "--markdown", help="For a pull request."),
) -> None:
    """Compare the config with what is applied and with the live server. Exit 0: nothing to do, 2: changes.

    Examples:

      emq-ops plan

      emq-ops plan --target orders --save orders.plan
    """
    context = CommandContext.of(ctx)
    files = [Path(file) for file in rules or ()]
    if offline:
        for option, given in (("--save", save), ("--revert", revert), ("--target", target)):
            if given:
                why = "a plan of the file alone is not what apply would do, and knows no drift"
                raise BadInputError(f"{option} with --offline: {why}", fix=f"{option} without --offline")
        _offline(context, markdown, files)
        return
    loaded = context.require_config()
    require_set(loaded)
    with deployment_of(context, "plan", look=True) as opened:
        held = look(opened, context, offline=False)
        with bar("plan"):
            proposal = opened.propose(loaded, revert or [], target=target or (), rules=files, store=held)
        show_plan(proposal.plan, context, markdown=markdown)
        tell_risks(context, opened.server)
        if save is not None:
            opened.save(proposal, file_of(save), key_of(loaded))
            say(f"emq-ops: saved; `emq-ops apply {save}` does exactly this")
    if proposal.plan.refusals:
        check(proposal.plan, allow_loss=True)
    if proposal.plan.changes:
        raise typer.Exit(EXIT_CHANGES)


def _offline(context: CommandContext, markdown: bool, rules: list[Path]) -> None:
    """The plan of the file alone, and in one line what is not in it."""
    loaded = context.look_at_config()
    found = plan_offline(loaded, context.options.state, rules)
    show_plan(found.plan, context, markdown=markdown, loaded=loaded)
    missing = "no reference was resolved, and no server or store was asked; what differs there (drift) is not in it"
    say(f"emq-ops: --offline: {found.compared}; {missing}")
    if found.plan.refusals:
        check(found.plan, allow_loss=True)
    if found.plan.changes:
        raise typer.Exit(EXIT_CHANGES)

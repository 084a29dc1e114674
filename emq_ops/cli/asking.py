"""The one question of everything that removes: it names the target, and production takes its name typed."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

import typer

from emq_ops.cli.context import CommandContext
from emq_ops.cli.output import say, say_held
from emq_ops.config.contexts import read_contexts
from emq_ops.policy.secrets import hide
from emq_ops.protocol.errors import BadInputError, one_line
from emq_ops.protocol.terminal import takes_colour


@dataclass(frozen=True, slots=True)
class ActTarget:
    """What a command acts on: the name of a context, else the server's URL without its secrets."""

    name: str
    production: bool = False


def target_of(context: CommandContext, place: str | None = None) -> ActTarget:
    """Returns the target of a command line. A config or server that a context means has its name, however it was
    named. `place`: where the server is, if neither the config nor the command line says so."""
    chosen = context.options.chosen
    if chosen is not None:
        name, one = chosen
        return ActTarget(name, one.production)
    url = place if place is not None else str(context.wiring.server["url"])
    found = read_contexts(os.environ).named_by(context.options.config_files(), url)
    return ActTarget(one_line(hide(url))) if found is None else ActTarget(found[0], found[1].production)


def ask(
    context: CommandContext, question: str, yes: bool | None, *, removes: bool = True, place: str | None = None
) -> bool:
    """Whether to go on with what `question` says. `yes`: ``--yes`` was given; None: this command asks nowhere but on
    production. `removes`: something goes by it; else production is asked no more than any other. `place`: as in
    `target_of`. Raises BadInputError where nobody can be asked, or ``--confirm`` names another target."""
    target, said = target_of(context, place), context.options.confirm
    if yes is False or target.production:
        say_held()  # what the question is about
    if said is not None and said != target.name:
        raise BadInputError(
            f"this would act on {target.name}, not on {said}", where="--confirm", fix="check the target"
        )
    if not (target.production and removes):
        if yes is not False:
            return True
        _require_terminal("--yes, or a saved plan")
        return bool(typer.confirm(f"[{_shown(target)}] {question}", err=True))
    if yes is not False and said is not None:
        return True
    if yes:
        raise BadInputError(f"{target.name} is production", where="--yes", fix=f"with --confirm {target.name}, if so")
    _require_terminal(f"{target.name} is production: {'' if yes is None else '--yes '}--confirm {target.name}")
    typed = typer.prompt(f"[{_shown(target)}] {question} Type its name", default="", err=True, show_default=False)
    if typed.strip() != target.name:
        say(f"emq-ops: that is not {target.name}")
        return False
    return True


def require(context: CommandContext, question: str, yes: bool | None = None) -> None:
    """Asks as `ask`, and leaves where the answer is no. Raises Abort."""
    if not ask(context, question, yes):
        raise typer.Abort


def _shown(target: ActTarget) -> str:
    """The target in a prompt: production in red, where the terminal has colours."""
    if not target.production:
        return target.name
    return f"\x1b[1;31m{target.name}\x1b[0m" if takes_colour(sys.stderr) else f"{target.name}, production"


def _require_terminal(fix: str) -> None:
    if not sys.stdin.isatty():
        raise BadInputError("nobody to ask", fix=fix)

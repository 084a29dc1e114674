"""``emq-ops completion``."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated

import typer

from emq_ops.cli.completion.scripts import SHELLS, script
from emq_ops.cli.completion.tree import entries
from emq_ops.cli.options import new_app
from emq_ops.playbook.play import shipped
from emq_ops.policy.words import did_you_mean
from emq_ops.protocol.errors import BadInputError

app = new_app()


@app.command()
def completion(
    shell: Annotated[str, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    """Print the script that completes commands, queues, runs, contexts and playbooks in a shell.

    bash: emq-ops completion bash > ~/.local/share/bash-completion/completions/emq-ops; zsh: into a folder of $fpath, as
    _emq-ops; fish: > ~/.config/fish/completions/emq-ops.fish. It starts no Python: names are those of the last look.

    Examples:

      emq-ops completion bash > ~/.local/share/bash-completion/completions/emq-ops

      emq-ops completion fish > ~/.config/fish/completions/emq-ops.fish
    """
    if shell not in SHELLS:
        raise BadInputError(f"no completion for '{shell}'", fix=did_you_mean(shell, SHELLS))
    found, anywhere = entries()
    about = f"Made by `emq-ops completion {shell}` of emq-ops {version('emq-ops')}; make it anew after an update."
    sys.stdout.write(script(shell, found, anywhere, shipped(), about))

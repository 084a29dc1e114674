"""``emq-ops schema``."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from emq_ops.cli.options import new_app
from emq_ops.policy.words import did_you_mean
from emq_ops.protocol.errors import BadInputError

app = new_app()
OF_WHAT = ("config", "output")


@app.command()
def schema(
    what: Annotated[str, typer.Argument(metavar="WHAT", help="config, or output.")] = "config",
    noun: Annotated[
        list[str] | None, typer.Argument(metavar="NOUN", help="With output: whose, such as runs ls; all without.")
    ] = None,
) -> None:
    """Print the JSON Schema of the config file, for editors; or of a command's JSON (`schema output NOUN`).

    The schema of an output has a version: a field that goes, or means something else, makes a new one.

    Examples:

      emq-ops schema > schema.json

      emq-ops schema output runs ls
    """
    if what not in OF_WHAT:
        raise BadInputError(f"no schema of '{what}'", fix=did_you_mean(what, OF_WHAT))
    if what == "config":
        from emq_ops.config.schema import json_schema

        found = json_schema()
    else:
        from emq_ops.cli.output_schemas import OUTPUTS, output_schema

        name = " ".join(noun or ())
        if name and name not in OUTPUTS:
            raise BadInputError(f"no schema of the output of '{name}'", fix=did_you_mean(name, OUTPUTS))
        found = output_schema(name) if name else {each: output_schema(each) for each in OUTPUTS}
    sys.stdout.write(json.dumps(found, indent=2) + "\n")

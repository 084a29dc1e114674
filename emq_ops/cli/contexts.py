"""``emq-ops context``: names for servers and configs."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from emq_ops.cli.completion.remembered import remember
from emq_ops.cli.options import GlobalOptions, new_app, options_of
from emq_ops.cli.output import emit_rows, say
from emq_ops.config.contexts import (
    NONE,
    NamedPlace,
    context_name,
    read_contexts,
    with_context,
    without_context,
    write_contexts,
)
from emq_ops.config.places import anchored
from emq_ops.policy.secrets import hide, url_password
from emq_ops.protocol.errors import BadInputError

app = new_app("Names for servers and configs, kept in ~/.config/emq-ops, without secrets.")

NameArg = Annotated[str, typer.Argument(metavar="NAME", help="The context.")]


@app.command()
def add(
    ctx: typer.Context,
    name: NameArg,
    production: Annotated[
        bool, typer.Option("--production", help="What removes asks for the name, in red, and takes it typed.")
    ] = False,
    use_it: Annotated[bool, typer.Option("--use", help="Use it from now on.")] = False,
) -> None:
    """Keep what -c, --url, --state, --local and --remote say under a name. One of that name is replaced.

    A password is a reference: --url 'redis://ops:${NAME}@host', which is looked up whenever it is used.

    Examples:

      emq-ops context add prod --production -c /srv/emq/config.yaml

      emq-ops context add here --use --url redis://localhost
    """
    options = options_of(ctx)
    try:
        context_name(name)
    except ValueError as fault:
        raise BadInputError(f"no name for a context: '{name}'", fix=str(fault)) from None
    urls = {key: _url(options, key) for key in ("url", "state", "local", "remote")}
    if not options.configs and not any(urls.values()):
        raise BadInputError(f"what is '{name}'?", fix="-c FILE, or --url URL with --state or --local")
    files = tuple(str(Path(path).absolute()) for path in options.config_files()) if options.configs else ()
    contexts = read_contexts(os.environ)
    new = with_context(contexts, name, NamedPlace(config=files, **urls, production=production))
    path = write_contexts(os.environ, replace(new, current=name) if use_it else new)
    remember("contexts", new.contexts)
    known = "is another now" if name in contexts.contexts else "is kept"
    back = f"emq-ops context rm {name}"
    say(f"emq-ops: context {name} {known} in {path}" + (", and in use" if use_it else "") + f"; `{back}` takes it away")


def _url(options: GlobalOptions, key: str) -> str | None:
    """A URL of the command line as it is kept. Raises BadInputError for one with a secret in it."""
    url: str | None = getattr(options, key)
    if url is None:
        return None
    password = url_password(url)
    if password is not None:
        shown = hide(url).replace("***", "${NAME}")
        if password.startswith("${"):
            raise BadInputError("a default would be the secret itself", where=f"--{key}", fix="write ${NAME}")
        raise BadInputError(
            "a password does not go into the contexts' file", where=f"--{key}", fix=f"write '{shown}', and set NAME"
        )
    return anchored(url, Path.cwd())


@app.command()
def use(ctx: typer.Context, name: NameArg) -> None:
    """Use a context wherever neither -c, --url, --context nor EMQ_CONTEXT names another; `-`: none.

    Examples:

      emq-ops context use prod

      emq-ops context use -
    """
    contexts = read_contexts(os.environ)
    if name == NONE:
        write_contexts(os.environ, replace(contexts, current=None))
        say("emq-ops: no context is in use")
        return
    one = contexts.get(name, "context use")
    write_contexts(os.environ, replace(contexts, current=name))
    back = contexts.current or NONE
    said = ", which is production" if one.production else ""
    say(f"emq-ops: {name}{said} is in use; `emq-ops context use {back}` goes back")


@app.command("ls")
def list_contexts(ctx: typer.Context) -> None:
    """List the contexts. The one in use has a mark.

    Examples:

      emq-ops context ls

      emq-ops context ls --output json
    """
    contexts = read_contexts(os.environ)
    rows = [
        {
            "name": name,
            "current": name == contexts.current,
            "production": one.production,
            "config": list(one.config),
            "url": hide(one.url) if one.url else None,
            "state": hide(one.state) if one.state else None,
            "local": hide(one.local) if one.local else None,
            "remote": hide(one.remote) if one.remote else None,
        }
        for name, one in sorted(contexts.contexts.items())
    ]
    output = options_of(ctx).output
    if output == "table":
        for row in rows:
            row["config"] = " ".join(map(str, row["config"] if isinstance(row["config"], list) else ()))
    emit_rows(rows, output, ("name", "current", "production", "url", "config", "state"))
    if not rows and output == "table":
        say("emq-ops: no context yet; `emq-ops -c FILE context add NAME` makes one")


@app.command()
def rm(ctx: typer.Context, name: NameArg) -> None:
    """Forget a context. What it names stays as it is.

    Examples:

      emq-ops context rm prod

      emq-ops context rm here
    """
    contexts = read_contexts(os.environ)
    contexts.get(name, "context rm")
    left = without_context(contexts, name)
    write_contexts(os.environ, left)
    remember("contexts", left.contexts)
    say(f"emq-ops: context {name} is forgotten; nothing that it named was touched")

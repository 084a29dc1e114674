"""Which context a command line goes by."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from emq_ops.cli.options import GlobalOptions
from emq_ops.cli.output import say
from emq_ops.config.contexts import NONE, NamedPlace, read_contexts
from emq_ops.protocol.errors import BadInputError


def choose(options: GlobalOptions, env: Mapping[str, str]) -> None:
    """Takes what a context says where the command line does not: that of ``--context``, else of EMQ_CONTEXT, else the
    one in use; -c and --url come before the latter two. Raises BadInputError for a context that is not there,
    SourceError for a file of contexts that can't be read."""
    placed = bool(options.configs) or options.url is not None
    name, where = options.context, "--context"
    if name is None and not placed and env.get("EMQ_CONTEXT"):
        name, where = env["EMQ_CONTEXT"], "EMQ_CONTEXT"
    if name == NONE or (name is None and placed):
        return
    contexts = read_contexts(env)
    if name is None:
        name, where = contexts.current, "contexts"
        if name is not None and os.path.isfile("config.yaml") and not _is_here(contexts.get(name, where)):
            say(f"emq-ops: context {name} is in use, and config.yaml here is not read (--context {NONE} reads it)")
    if name is None:
        return
    one = contexts.get(name, where)
    if placed:
        raise BadInputError(f"--context {name}, and -c or --url beside it", fix="name the place in one way")
    options.configs, options.url = [Path(path) for path in one.config], one.url
    for key in ("state", "local", "remote"):
        setattr(options, key, getattr(options, key) or getattr(one, key))
    options.chosen = name, one


def _is_here(one: NamedPlace) -> bool:
    """Whether a context reads the config that is here."""
    return any(os.path.realpath(path) == os.path.realpath("config.yaml") for path in one.config)

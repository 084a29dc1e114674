"""From the global options to a config that was read, and to where everything is."""

from __future__ import annotations

import os
from pathlib import Path

from emq_ops.cli.context import Globals
from emq_ops.config.loader import Loaded, load
from emq_ops.config.wiring import Wiring
from emq_ops.protocol.errors import BadInputError

PLACES = ("server", "state", "archive")
"""The sections that say where everything is."""


def loaded_of(options: Globals) -> Loaded:
    """The config of this command line: the files of ``-c``, else ``config.yaml`` here, else defaults (also with
    ``--url`` alone). Raises ConfigError."""
    return load(options.config_files(), os.environ)


def required(options: Globals) -> Loaded:
    """As `loaded_of`, for commands that are about the file. Raises BadInputError where there is none."""
    files = options.config_files()
    if not files:
        raise BadInputError("no config file", fix="-c FILE, or a config.yaml here")
    return load(files, os.environ)


def wiring_of(options: Globals, loaded: Loaded | None = None) -> Wiring:
    """Where server, state and archive are: the config's, with ``--url``, ``--state``, ``--local`` and ``--remote``
    over it. With ``--url`` and no file, the database of ``--local`` is also the state unless ``--state`` names one.
    Without `loaded` only those sections of the files are read: whoever asks so needs nothing else of them."""
    found = loaded if loaded is not None else load(options.config_files(), os.environ, only=PLACES)
    wiring = Wiring.of(found) if found.sources else Wiring.of_urls(os.environ, Path.cwd())
    state = options.state
    if state is None and not found.sources and options.local is not None:
        state = options.local
    return wiring.with_urls(server=options.url, state=state, local=options.local, remote=options.remote)

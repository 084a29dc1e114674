"""The embedded server as seen from outside: whether it lives, who watches it, processes that use it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

from emq_ops.protocol.connection import guardian
from emq_ops.protocol.server import Server, connect
from tests.support.cluster import until

KEY = "emq:{mail}:meta"


def alive(base: Path, name: str = "server") -> bool:
    """Whether the server (or the ``guard``) of that folder lives: it holds its lock as long as it does."""
    path = base / ".emq" / "server" / f"{name}.lock"
    if not path.exists():
        return False
    with path.open("r+") as file:
        return not guardian.try_lock(file.fileno(), fcntl.LOCK_EX)


def gone(base: Path) -> None:
    until("nothing runs there", lambda: not alive(base) and not alive(base, "guard"))
    left = {entry.name for entry in (base / ".emq" / "server").iterdir()}
    assert left <= {"appendonlydir", "server.log", "start.lock", "users.lock", "server.lock", "guard.lock"}


def add(server: Server) -> int:
    return int(server.write("HINCRBY", KEY, "n", 1))


def pid_of(server: Server) -> int:
    return int(server.info("mail", "server")["process_id"])


def guard_of(base: Path) -> int:
    """The watcher's process id: it is the one whose command line names the folder."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if guardian.__file__.encode() in words and str(base / ".emq" / "server").encode() in words:
                return int(entry.name)
    raise AssertionError("no watcher")


@contextlib.contextmanager
def user(base: Path, work: Callable[[Server], object] = lambda server: None) -> Iterator[int]:
    """A process of its own that connects, works, and then stays until it is killed; answers its id once it has
    worked."""
    ready, done = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            server = connect("embedded", base_dir=base)
            work(server)
            os.write(done, b"1")
            signal.pause()
        finally:
            os._exit(1)
    os.close(done)
    try:
        assert os.read(ready, 1) == b"1"
        yield child
    finally:
        os.close(ready)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

"""Who holds a lease: host, process, and whether a process of this very machine is still alive."""

from __future__ import annotations

import functools
import getpass
import hashlib
import os
import secrets
import socket
from dataclasses import dataclass, field
from pathlib import Path

from emq_ops.protocol.errors import one_line

DAEMON, COMMAND = "daemon", "command"
"""The roles of holders: beside a daemon, a command asks it to run the pass."""


def _text_of(path: str) -> str:
    try:
        return Path(path).read_text("ascii", "replace").strip()
    except OSError:
        return ""


@functools.cache
def machine_id() -> str:
    """Names the space in which process ids mean something: this boot of this host, this pid namespace."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    parts = (socket.gethostname(), _text_of("/proc/sys/kernel/random/boot_id"), namespace)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def start_of(pid: int) -> str:
    """When a process started, as the kernel tells it ('' where it can't be told, or the process is gone)."""
    # The name in the second field may hold spaces and brackets; the fields after it do not.
    _, _, rest = _text_of(f"/proc/{pid}/stat").rpartition(")")
    fields = rest.split()
    return fields[19] if len(fields) > 19 and fields[0] not in ("Z", "X") else ""


def user() -> str:
    """The user's name, for people to read."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # no entry for this uid
        return str(os.getuid()) if hasattr(os, "getuid") else "unknown"


def place() -> str:
    """``user@host`` of this process."""
    return one_line(f"{user()}@{socket.gethostname()}")[:240]


def name_of(host: str, pid: int | str) -> str:
    """A process as it is called everywhere: ``user@host:pid``. `host`: what `place` says."""
    return f"{host}:{pid}"


def who() -> str:
    """``user@host:pid`` of this process."""
    return name_of(place(), os.getpid())


@dataclass(frozen=True, slots=True)
class Holder:
    """Whoever holds or held a lease. `role`: daemon or command. `host`: for people to read, ``user@host``. `nonce`
    tells two holders in one process apart."""

    role: str
    host: str
    machine: str
    pid: int
    start: str
    nonce: str = field(default_factory=lambda: secrets.token_hex(8))

    @classmethod
    def me(cls, role: str) -> Holder:
        """A new holder of this process."""
        return cls(role, place(), machine_id(), os.getpid(), start_of(os.getpid()))

    @property
    def surely_dead(self) -> bool:
        """Whether it was a process of this machine that is gone for certain. Another machine's never is."""
        if self.machine != machine_id() or self.pid <= 0:
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        if self.start == "":
            return False
        # Another process may have got the number since; a zombie has none of its own any more.
        return start_of(self.pid) != self.start

    @property
    def surely_alive(self) -> bool:
        """Whether it is a process of this machine that runs. What runs elsewhere can't be told."""
        return self.machine == machine_id() and self.start != "" and start_of(self.pid) == self.start

    def __str__(self) -> str:
        return name_of(self.host, self.pid)

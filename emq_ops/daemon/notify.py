"""Telling the outside that the daemon is ready, or ends: systemd's socket and a ready file."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from emq_ops.deploy.store.revisions import Revision
from emq_ops.protocol import files
from emq_ops.protocol.errors import BadInputError


def sd_notify(text: str) -> bool:
    """Sends `text` (``READY=1``, ``STOPPING=1`` ...) to systemd; False where nobody listens."""
    target = os.environ.get("NOTIFY_SOCKET", "")
    if not target:
        return False
    address = "\0" + target[1:] if target.startswith("@") else target
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.sendto(text.encode("utf-8"), address)
    except OSError:
        return False
    return True


class ReadyFile:
    """A file that exists while the daemon is ready; its content is the process id."""

    def __init__(self, path: Path | None) -> None:
        """Raises BadInputError for a path at which something is that is no regular file."""
        self.path = None if path is None else files.regular(path)

    def up(self) -> None:
        """Makes it, whole or not at all. Raises BadInputError where it can't be made."""
        if self.path is not None:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as fault:
                what = f"can't make its folder: {fault.strerror}"
                raise BadInputError(what, where=str(self.path), fix="check the path and rights") from None
            with files.written(self.path, mode=0o644) as file:
                file.write(f"{os.getpid()}\n")

    def down(self) -> None:
        """Takes it away."""
        if self.path is not None:
            with contextlib.suppress(OSError):
                self.path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a daemon tells, and is told by, the process around it. `ready`: a file that is there while it is ready;
    `follow_file`: called twice a second where it follows a config file (``--watch``); `followed`: told of each revision
    that is taken over later on."""

    ready: Path | None = None
    follow_file: Callable[[], None] | None = None
    followed: Callable[[Revision], None] = lambda _revision: None

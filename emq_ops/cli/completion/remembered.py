"""Names that the last look saw, kept for the shell's completion, a name a line."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable

from emq_ops.protocol.files import make_private, user_file, write_privately

KINDS = ("queues", "runs", "contexts")
MOST = 5_000
_PLAIN = re.compile(r"[A-Za-z0-9_.@%+,/-]+")
"""What no shell reads as anything but a word; other names are typed by hand."""


def remember(kind: str, names: Iterable[str]) -> None:
    """Keeps the names of a kind in the place of those before. Never fails: completion is a comfort."""
    plain = sorted({name for name in names if _PLAIN.fullmatch(name) and name[0] != "-"})[:MOST]
    data = "".join(f"{name}\n" for name in plain).encode()
    path = user_file(os.environ, kind, "cache")
    with contextlib.suppress(OSError):
        with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
            if file.read(len(data) + 1) == data:
                return
        make_private(os.path.dirname(path))
        write_privately(path, data)

"""The digest of a dead job, as ``lua/lib/dead.lua`` makes it: for whoever compares, without what archiving needs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

_LED = [b"%d:" % size for size in range(1024)]


def dead_digest(values: Sequence[bytes | None], logs: Sequence[bytes]) -> str:
    """The digest of ``lua/lib/dead.lua``: over the values of a row's fields in the caller's order (None: not there)
    and the log lines, oldest first. 40 hex digits."""
    parts: list[bytes] = []
    for value in values:  # by the hundred thousand in one trim: no formatting where there is a text made already
        if value is None:
            parts.append(b"-")
        else:
            size = len(value)
            parts += (_LED[size] if size < 1024 else b"%d:" % size, value)
    parts.append(b"*")
    if logs:
        parts += [b"%d:%b" % (len(line), line) for line in logs]
    return hashlib.sha1(b"".join(parts), usedforsecurity=False).hexdigest()

"""The digest of a dead job, as ``lua/lib/dead.lua`` makes it: for whoever compares, without what archiving needs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence


def dead_digest(values: Sequence[bytes | None], logs: Sequence[bytes]) -> str:
    """The digest of ``lua/lib/dead.lua``: over the values of a row's fields in the caller's order (None: not there)
    and the log lines, oldest first. 40 hex digits."""
    parts = [b"-" if value is None else b"%d:%b" % (len(value), value) for value in values]
    parts.append(b"*")
    parts += [b"%d:%b" % (len(line), line) for line in logs]
    return hashlib.sha1(b"".join(parts), usedforsecurity=False).hexdigest()

"""Reading back what was written: a store's word alone proves nothing."""

from __future__ import annotations

import time

from emq_archive.errors import DamagedArchiveError, StoreRefusedError
from emq_archive.ports import Remote
from emq_ops.protocol import deadline

WAITS = (0.1, 0.2, 0.5, 1.0, 2.0)
"""Seconds between looks for an object that was just written: some stores show it a little later."""


def read_back(remote: Remote, key: str) -> bytes | None:
    """The object that was just written; None where it does not appear within some seconds."""
    for wait in WAITS:
        body = remote.get(key)
        if body is not None:
            return body
        deadline.check(f"reading {key} back")
        time.sleep(min(wait, deadline.within(wait) or 0.0))
    return remote.get(key)


def not_larger(remote: Remote, key: str, size: int, most: int) -> None:
    """Raises DamagedArchiveError for an object of more than `most` bytes."""
    if size > most:
        what = f"{key} has {size} bytes, more than the {most} that such an object may have"
        raise DamagedArchiveError(
            what, faults=(key,), where=remote.url, fix="it is none that emq-ops wrote; look who did"
        )


def not_kept(remote: Remote, key: str) -> StoreRefusedError:
    """What to say of a store that took an object and does not have it."""
    return StoreRefusedError(
        f"what is read back of {key} is not what was written",
        code="ReadBack",
        where=remote.url,
        fix="check the store; nothing is trimmed on it",
    )

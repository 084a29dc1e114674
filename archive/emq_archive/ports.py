"""What the archive asks of an object store, whichever it is (`emq_archive.remote`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, Protocol


class Remote(Protocol):
    """An object store with create-only writes. Keys are '/'-joined texts below the store's own prefix.

    Raises StoreRefusedError, StoreUnreachableError, DiskFullError, DeadlineError. Every call but `put` and `delete` is
    safe to repeat.
    """

    url: str
    sign: bytes | None
    """Signs the logs that stand here; None: they are not signed, and signatures are not looked at."""

    def location(self, key: str) -> str:
        """Where engines find an object: ``s3://...`` or ``file:///...``."""

    def probe(self, *, leave: bool = True) -> None:
        """Proves once a process that creating twice is refused; StoreRefusedError says what to do otherwise. Without
        `leave` it is proven anew, by an object that is gone afterwards."""

    def create(self, key: str, body: bytes | Path) -> Literal["created", "exists"]:
        """Writes a new object (from bytes or from a file), durable when this returns.

        ``exists``: one is there (it may be our own lost reply)."""

    def get(self, key: str, *, most: int | None = None) -> bytes | None:
        """The whole object, None where there is none. Raises DamagedArchiveError for one of more than `most` bytes,
        before it is read."""

    def get_range(self, key: str, start: int, length: int) -> bytes | None: ...

    def size(self, key: str) -> int | None:
        """Its length, None where there is none."""

    def sizes(self, keys: Sequence[str]) -> dict[str, int]:
        """The lengths of those that are there, in few requests where they stand in few folders."""

    def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> list[str]:
        """At most `limit` (up to 1000) keys that begin with `prefix` and come after `after`, in byte order: one
        request."""

    def put(self, key: str, body: bytes) -> None:
        """Writes over whatever is there: for caches only."""

    def delete(self, keys: Iterable[str]) -> None:
        """Deletes; keys that are not there are fine."""

    def close(self) -> None: ...

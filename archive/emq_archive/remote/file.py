"""An object of the remote as a file that Parquet readers seek in: ranges are fetched as they are asked for."""

from __future__ import annotations

import io
import time
from typing import Any

from emq_archive.errors import DamagedArchiveError
from emq_archive.ports import Remote
from emq_ops.protocol import deadline

_TAIL = 128 * 1024


class RemoteFile(io.RawIOBase):
    """Read-only. The object's end (footer and filters) is fetched once. `until`: when reading ends (monotonic seconds),
    for a reader whose threads carry no deadline."""

    def __init__(self, remote: Remote, key: str, size: int, *, until: float | None = None) -> None:
        super().__init__()
        self._until = until
        self._remote, self._key, self._size = remote, key, size
        self._position = 0
        self._tail_at = max(0, size - _TAIL)
        self._tail: bytes | None = None

    def at(self, start: int, length: int) -> bytes:
        """`length` bytes from `start`. Raises DamagedArchiveError where they are not there."""
        if start < 0:
            raise DamagedArchiveError(f"segment {self._key} says where nothing is", faults=(self._key,))
        length = max(0, min(length, self._size - start))
        if start >= self._tail_at:
            if self._tail is None:
                self._tail = self._fetch(self._tail_at, self._size - self._tail_at)
            return self._tail[start - self._tail_at : start - self._tail_at + length]
        return self._fetch(start, length)

    def _fetch(self, start: int, length: int) -> bytes:
        left = None if self._until is None else max(0.0, self._until - time.monotonic())
        with deadline.deadline(left):
            found = self._remote.get_range(self._key, start, length)
        if found is None or len(found) != length:
            what = "is missing" if found is None else f"ends before byte {start + length}"
            raise DamagedArchiveError(f"segment {self._key} {what}", faults=(self._key,), where=self._remote.url)
        return found

    def forget(self) -> None:
        """Lets go of what was fetched; it is fetched again when it is asked for."""
        self._tail = None

    def read(self, size: int | None = -1) -> bytes:
        length = self._size - self._position if size is None or size < 0 else size
        found = self.at(self._position, length)
        self._position += len(found)
        return found

    def readinto(self, buffer: Any) -> int:
        found = self.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def tell(self) -> int:
        return self._position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

"""A segment as a file that hands a Parquet reader no column that would unpack to more than one of ours."""

from __future__ import annotations

import bisect
import io
import threading
from typing import Any

from emq_archive import pages
from emq_archive.arrow import pa, pq
from emq_archive.errors import DamagedArchiveError
from emq_ops.protocol.errors import EmqError

_MAGIC = 8
"""Bytes behind the footer: its length, and PAR1."""
_MOST_COLUMNS = 200_000
"""In all row groups together: a terabyte of records has as many."""


class CheckedFile(io.RawIOBase):
    """Read-only, over `source`. Every read that holds a column is looked through first, so a reader has to read columns
    whole (``pre_buffer=False``). Reads raise DamagedArchiveError naming `key`."""

    def __init__(self, source: Any, key: str, schema: pa.Schema) -> None:
        super().__init__()
        self._source, self._key, self._schema = source, key, schema
        self._size = source.seek(0, io.SEEK_END)
        self._at = 0
        self.recent: Recent | None = None
        self._metadata: pq.FileMetaData | None = None
        self._columns: list[tuple[int, int, int, int]] = []

    @property
    def metadata(self) -> pq.FileMetaData:
        """The footer, read once. Raises DamagedArchiveError."""
        if self._metadata is None:
            self._load()
        return self._metadata

    def forget(self) -> None:
        """Lets go of the footer and of what the source holds; they are read again when they are needed."""
        self._metadata, self._columns = None, []
        if hasattr(self._source, "forget"):
            self._source.forget()

    def _load(self) -> None:
        self._source.seek(0)
        try:
            file = pq.ParquetFile(self._source, pre_buffer=False)
            names, metadata = file.schema_arrow.names, file.metadata
            alike = pa.schema([file.schema_arrow.field(i) for i in range(min(len(names), len(self._schema)))])
        except (pa.ArrowException, OSError, ValueError) as fault:
            raise self._damaged(f"is no readable Parquet file ({type(fault).__name__})", fault) from fault
        if not alike.equals(self._schema):
            raise self._damaged("lacks columns, or has others than ours")
        self._source.seek(-_MAGIC, io.SEEK_END)
        footer = self._size - _MAGIC - int.from_bytes(self._source.read(4), "little")
        columns = []
        if metadata.num_row_groups * metadata.num_columns > _MOST_COLUMNS:
            raise self._damaged(f"has more than {_MOST_COLUMNS} columns in its row groups")
        for group in range(metadata.num_row_groups):
            for column in range(metadata.num_columns):
                start, length = pages.span(metadata.row_group(group).column(column))
                if start < 0 or length < 0 or start + length > footer:
                    raise self._damaged("says that a column is where nothing is")
                columns.append((start, length, group, column))
        self._columns, self._metadata = sorted(columns), metadata
        if self.recent is not None:
            self.recent.used(self)

    def read(self, size: int | None = -1) -> bytes:
        try:
            return self._read(size)
        except EmqError as fault:
            if self.recent is not None:
                self.recent.fault = fault
            raise

    def _read(self, size: int | None) -> bytes:
        start = self._at
        self._source.seek(start)
        data: bytes = self._source.read(-1 if size is None else size)
        self._at = start + len(data)
        if self._at <= self._size - _MAGIC:  # what reaches to the end is read for the footer alone
            self._check(data, start, self.metadata)
        return data

    def _check(self, data: bytes, start: int, metadata: pq.FileMetaData) -> None:
        """The columns that are read with this: those that begin where it begins, and end in it."""
        here = [column for column in self._from(start) if column[1] <= len(data)]
        if not here and data:
            raise self._damaged("says that columns lie in one another")
        for _, length, group, column in here:
            try:
                pages.check(data[:length], metadata, group, column)
            except pages.Bomb as fault:
                raise self._damaged(str(fault)) from None
            except (pa.ArrowException, OSError, ValueError) as fault:
                raise self._damaged(f"can't be read in row group {group} ({type(fault).__name__})", fault) from fault

    def _from(self, start: int) -> list[tuple[int, int, int, int]]:
        low = bisect.bisect_left(self._columns, (start,))
        return self._columns[low : bisect.bisect_left(self._columns, (start + 1,))]

    def _damaged(self, what: str, fault: Exception | None = None) -> DamagedArchiveError:
        fix = None if fault is not None else "it is none that emq-ops wrote; look who did"
        return DamagedArchiveError(f"segment {self._key} {what}", faults=(self._key,), fix=fix)

    def readinto(self, buffer: Any) -> int:
        found = self.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


class Recent:
    """The files of many that were read last: only so many keep their footers. `fault`: why reading one failed."""

    def __init__(self, most: int = 256) -> None:
        self._most, self._order, self._lock = most, dict[CheckedFile, None](), threading.Lock()
        self.fault: EmqError | None = None

    def add(self, file: CheckedFile) -> CheckedFile:
        """One more file, that is not read yet."""
        file.recent = self
        return file

    def used(self, file: CheckedFile) -> None:
        """Notes that a file was read, and has the one that was not for longest forget its footer."""
        with self._lock:
            self._order.pop(file, None)
            self._order[file] = None
            old = [] if len(self._order) <= self._most else [next(iter(self._order))]
            for one in old:
                del self._order[one]
        for one in old:
            one.forget()

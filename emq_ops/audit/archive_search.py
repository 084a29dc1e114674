"""A text looked for in the archive's records: bounded, and resumable."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from emq_archive.model import Record, StreamId, StreamRef, parse_id
from emq_archive.read.archive import Archive
from emq_ops.audit.archived import Archived
from emq_ops.protocol.errors import BadInputError

HEAD = "archive:"
"""What a cursor of this search begins with."""


@dataclass(slots=True)
class ArchiveSearch:
    """Archived records of the queues in which a value contains `text`, stream by stream. At most `most` records are
    looked at; then `cursor` says where a search like this one goes on (``archive:queue/stream/id``, behind which it
    begins; empty: it came to the end). Raises BadInputError for another cursor."""

    archived: Archived
    queues: Collection[str]
    text: bytes
    most: int
    cursor: str = ""
    looked: int = field(default=0, init=False)

    def __iter__(self) -> Iterator[tuple[StreamRef, Record]]:
        first, after = self._start()
        for ref in self.archived.local.streams():
            key = (ref.queue, ref.stream, ref.kind)
            if ref.queue not in self.queues or key < first:
                continue
            behind = after if key == first else None
            for record in Archive(self.archived.local, self.archived.remote, ref).read(behind):
                if behind is not None and record.id <= behind:
                    continue
                if self.looked >= self.most:
                    return
                self.looked += 1
                self.cursor = f"{HEAD}{ref.queue}/{ref.stream}/{ref.kind}/{record.stream_id}"
                if any(self.text in value for _, value in record.fields):
                    yield ref, record
        self.cursor = ""

    def _start(self) -> tuple[tuple[str, str, str], StreamId | None]:
        if not self.cursor or self.cursor == HEAD:
            return ("", "", ""), None
        try:
            queue, stream, kind, at = self.cursor.removeprefix(HEAD).rsplit("/", 3)
            return (queue, stream, kind), parse_id(at)
        except ValueError:
            raise BadInputError(
                f"'{self.cursor}' is no place to go on from", where="--from", fix="as the search said"
            ) from None


def row_of_record(ref: StreamRef, record: Record) -> dict[str, Any]:
    """A record as a row of found jobs; payload and error as they are."""
    dead = ref.kind == "dead"
    return {
        "queue": ref.queue,
        "job": record.job,
        "state": "archived dead" if dead else f"archived in {ref.stream}",
        "attempts": record.attempts,
        "at_ms": None if dead else record.time_ms,
        "payload": record.first(b"row:payload") if dead else record.first(b"result"),
        "error": record.first(b"row:last_error") if dead else record.first(b"error"),
        "record": record.stream_id,
    }

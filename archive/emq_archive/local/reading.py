"""Reading the local database: its transactions, its rows of streams, and the records of its chunks in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy import Connection

from emq_archive.chunk import Chunk
from emq_archive.codec import id_key, id_of
from emq_archive.local import tables
from emq_archive.merge import SortedSource, merge, order
from emq_archive.model import LAST_ID, Record, StreamId, StreamRef
from emq_ops.database.engine import Database
from emq_ops.database.statements import among, insert
from emq_ops.protocol.deadline import remaining

streams, chunks = tables.streams, tables.chunks
_PAGE = 200
# Built once: a cycle asks it many times, and building a statement costs more than running it.
ROW = sa.select(streams).where(
    streams.c.queue == sa.bindparam("queue"),
    streams.c.stream == sa.bindparam("stream"),
    streams.c.kind == sa.bindparam("kind"),
)
_ROW_LOCKED = ROW.with_for_update()


class ChunkReader:
    """An open database, as readers see it."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.engine = database.engine
        self.url = database.where

    def read(self) -> Any:
        """A reading transaction (context manager): one consistent sight."""
        return self.database.read(remaining())

    def write(self) -> Any:
        """A writing transaction; holds the write lock from its beginning on SQLite."""
        return self.database.write(remaining())

    def row(self, connection: Connection, ref: StreamRef, *, lock: bool = False) -> Any:
        """The row of a stream, None where it was never heard of. `lock`: made if need be, and held (PostgreSQL)."""
        named = names_of(ref)
        found = connection.execute(_ROW_LOCKED if lock else ROW, named).one_or_none()
        if found is None and lock:
            connection.execute(insert(connection, streams).values(named).on_conflict_do_nothing())
            found = connection.execute(_ROW_LOCKED, named).one()
        return found

    def known(self, queues: Sequence[str]) -> set[tuple[str, str]]:
        """Of these queues: each stream that has a row, as (queue, stream)."""
        with self.read() as connection:
            wanted = sa.select(streams.c.queue, streams.c.stream).where(among(connection, streams.c.queue, queues))
            return {(row.queue, row.stream) for row in connection.execute(wanted)}

    def runs(
        self, ref: StreamRef, start: StreamId, end: StreamId, *, job: str | None = None, outbox_only: bool = False
    ) -> Iterator[SortedSource]:
        """The chunks that may hold records of [start, end], by their first id, to be merged."""
        wanted = sa.select(chunks.c.id, chunks.c.first, chunks.c.incarnation).where(
            chunks.c.last >= id_key(*start), chunks.c.first <= id_key(*end)
        )
        if job is not None:
            text = job.encode("utf-8")
            wanted = wanted.where(chunks.c.job_min <= text, chunks.c.job_max >= text)
        if outbox_only:
            wanted = wanted.where(chunks.c.lsn.is_(None))
        wanted = wanted.order_by(chunks.c.first, chunks.c.id).limit(_PAGE)
        at: tuple[bytes, int] | None = None
        while True:
            with self.read() as connection:
                stream = self.row(connection, ref)
                if stream is None:
                    return
                page = wanted.where(chunks.c.stream_id == stream.id)
                if at is not None:
                    page = page.where((chunks.c.first > at[0]) | ((chunks.c.first == at[0]) & (chunks.c.id > at[1])))
                found = connection.execute(page).all()
            for row in found:
                yield SortedSource(id_of(row.first), self._opener(row.id, row.incarnation, ref.kind, start, end, job))
            if len(found) < _PAGE:
                return
            at = (found[-1].first, found[-1].id)

    def _opener(
        self,
        chunk: int,
        incarnation: int,
        kind: Literal["stream", "dead"],
        start: StreamId,
        end: StreamId,
        job: str | None,
    ) -> Any:
        def opened() -> Iterator[Record]:
            with self.read() as connection:
                body = connection.execute(sa.select(chunks.c.body).where(chunks.c.id == chunk)).scalar_one_or_none()
            if body is None:
                raise MovedError
            for record in Chunk.decode(body).records(incarnation, kind):
                if start <= record.id <= end and (job is None or record.job == job):
                    yield record

        return opened

    def records(
        self,
        ref: StreamRef,
        start: StreamId | None = None,
        end: StreamId | None = None,
        *,
        job: str | None = None,
        limit: int | None = None,
    ) -> Iterator[Record]:
        """See `ports.SqlStore.records`."""
        yield from again_when_moved(
            lambda since: merge(self.runs(ref, since, end or LAST_ID, job=job)), start or (0, 0), limit
        )


def names_of(ref: StreamRef) -> dict[str, str]:
    """What a stream's row is found by."""
    return {"queue": ref.queue, "stream": ref.stream, "kind": ref.kind}


class MovedError(Exception):
    """A chunk was merged with others or pruned while it was to be read: look again."""


def again_when_moved(read: Any, start: StreamId, limit: int | None) -> Iterator[Record]:
    """Records of ``read(since)``, begun again behind what was handed out whenever a chunk moved meanwhile."""
    done: Any = None
    since, count = start, 0
    while True:
        try:
            for record in read(since):
                if done is not None and order(record) <= done:
                    continue
                if limit is not None and count >= limit:
                    return
                yield record
                done, since, count = order(record), record.id, count + 1
            return
        except MovedError:
            continue

"""Rows of the local database on their way into the remote: which wait, which are proven, by which commit."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from emq_archive.chunk import Chunk, ordered
from emq_archive.codec import id_key, id_of
from emq_archive.local import tables
from emq_archive.local.rows import MAX_RECORDS, rows_of
from emq_archive.local.store import SqlStore
from emq_archive.log.commit import Segment
from emq_archive.model import StreamId, StreamRef

streams, chunks = tables.streams, tables.chunks
SMALL = 1024
"""Shipped rows with fewer records on average are made into one."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A chunk of the outbox, without its body."""

    row: int
    first: StreamId
    last: StreamId
    incarnation: int
    day: int
    records: int
    weight: int
    added_ms: int


NOWHERE = SimpleNamespace(
    id=None,
    lsn=0,
    head=None,
    state=None,
    token=0,
    opened=0,
    committed_ms=None,
    checkpoint_lsn=0,
    damage=None,
    damage_in_log=None,
    incarnation=0,
)
"""The row of a stream that this database never heard of."""


class OutboxRows:
    """The rows of one stream."""

    def __init__(self, store: SqlStore, ref: StreamRef) -> None:
        self.store = store
        self.ref = ref

    @contextlib.contextmanager
    def reading(self) -> Iterator[tuple[Connection, Any]]:
        """A reading transaction, and the stream's row in it (without an `id` where it was never heard of)."""
        with self.store.read() as connection:
            yield connection, self.store.row(connection, self.ref) or NOWHERE

    @contextlib.contextmanager
    def writing(self) -> Iterator[tuple[Connection, Any]]:
        """A writing transaction, and the stream's row in it, made if need be."""
        with self.store.write() as connection:
            yield connection, self.store.row(connection, self.ref, lock=True)

    def waiting(self) -> list[Waiting]:
        """The outbox: incarnation by incarnation, day by day, by id."""
        with self.reading() as (connection, row):
            c = chunks.c
            found = connection.execute(
                sa.select(c.id, c.first, c.last, c.incarnation, c.day, c.records, c.weight, c.added_ms)
                .where(c.stream_id == row.id, c.lsn.is_(None))
                .order_by(c.incarnation, c.day, c.first, c.id)
            ).all()
        return [
            Waiting(f.id, id_of(f.first), id_of(f.last), f.incarnation, f.day, f.records, f.weight, f.added_ms)
            for f in found
        ]

    def bodies(self, rows: Iterable[int]) -> Iterator[Chunk | None]:
        """The records of rows, one after the other; None for one that is gone."""
        for row in rows:
            with self.store.read() as connection:
                body = connection.execute(sa.select(chunks.c.body).where(chunks.c.id == row)).scalar_one_or_none()
            yield Chunk.decode(body) if body is not None else None

    def shipped(self, group: Sequence[Waiting], lsn: int) -> bool:
        """Every record of these rows is in the segment of commit `lsn`, which was read back. Many small rows become
        few. False (and nothing changed) if a row is not there as it was: another process was quicker."""
        small = len(group) > 1 and sum(w.records for w in group) < SMALL * len(group)
        ids = [waiting.row for waiting in group]
        with self.writing() as (connection, stream):
            if not self._all_waiting(connection, ids):
                return False
            if not small:
                for at in range(0, len(ids), 500):
                    mine = chunks.c.id.in_(ids[at : at + 500])
                    connection.execute(sa.update(chunks).where(mine).values(lsn=lsn))
                return True
            bunch: list[Waiting] = []
            for waiting in [*group, None]:
                if waiting is not None and sum(w.records for w in bunch) + waiting.records <= MAX_RECORDS:
                    bunch.append(waiting)
                    continue
                self._rewrite(connection, stream.id, bunch, lsn)
                bunch = [waiting] if waiting is not None else []
        return True

    def _rewrite(self, connection: Connection, stream: int, bunch: Sequence[Waiting], lsn: int) -> None:
        if not bunch:
            return
        ids = [waiting.row for waiting in bunch]
        bodies = {
            row.id: row.body
            for at in range(0, len(ids), 500)
            for row in connection.execute(
                sa.select(chunks.c.id, chunks.c.body).where(chunks.c.id.in_(ids[at : at + 500]))
            )
        }
        whole = ordered([Chunk.decode(bodies[i]) for i in ids])
        self._replace(connection, stream, ids, [(whole, bunch[0].incarnation, lsn)], min(w.added_ms for w in bunch))

    def split(self, waiting: Waiting, pieces: Sequence[tuple[Chunk, int, int | None]]) -> bool:
        """Puts `pieces` (records, incarnation, commit that proves them or None) in place of a row of the outbox."""
        with self.writing() as (connection, stream):
            if not self._all_waiting(connection, [waiting.row]):
                return False
            self._replace(connection, stream.id, [waiting.row], pieces, waiting.added_ms)
            newest = max(incarnation for _, incarnation, _ in pieces)
            if newest > stream.incarnation:
                connection.execute(sa.update(streams).where(streams.c.id == stream.id).values(incarnation=newest))
        return True

    def old(self, before_ms: int, below: StreamId) -> set[int]:
        """The commits that prove rows which may be pruned: shipped, of before `before_ms` (unix ms; of a stream by the
        records' ids, dead jobs by when they were archived), and below an id."""
        with self.reading() as (connection, stream):
            wanted = sa.select(chunks.c.lsn).where(self._old(stream.id, before_ms, below)).distinct()
            return set(connection.execute(wanted).scalars())

    def prune(self, before_ms: int, below: StreamId, lsns: Collection[int]) -> int:
        """Deletes the rows that `old` means and that these commits prove; returns how many records they held."""
        pruned = 0
        with self.writing() as (connection, stream):
            old = self._old(stream.id, before_ms, below)
            for lsn in sorted(lsns):
                mine = old & (chunks.c.lsn == lsn)
                count = sa.select(sa.func.coalesce(sa.func.sum(chunks.c.records), 0)).where(mine)
                pruned += int(connection.execute(count).scalar_one())
                connection.execute(sa.delete(chunks).where(mine))
        return pruned

    def _old(self, stream: int | None, before_ms: int, below: StreamId) -> sa.ColumnElement[bool]:
        mine = (chunks.c.stream_id == stream) & chunks.c.lsn.is_not(None) & (chunks.c.last < id_key(*below))
        if self.ref.kind == "dead":
            return mine & (chunks.c.added_ms < before_ms)
        return mine & (chunks.c.last < id_key(max(0, before_ms), 0))

    def proven_by(self, lsn: int) -> list[Chunk]:
        """The records that a commit proves, as far as they are here."""
        with self.reading() as (connection, stream):
            wanted = sa.select(chunks.c.body).where(chunks.c.stream_id == stream.id, chunks.c.lsn == lsn)
            return [Chunk.decode(body) for body in connection.execute(wanted).scalars()]

    def restored(self, segment: Segment, chunk: Chunk, now_ms: int) -> None:
        """Stores records that were read from a segment."""
        with self.writing() as (connection, stream):
            rows = rows_of(chunk, stream=stream.id, incarnation=segment.incarnation, added_ms=now_ms, lsn=segment.lsn)
            connection.execute(sa.insert(chunks), rows)

    def forget(self, segment: Segment) -> None:
        """Drops the rows that a segment proves (before it is restored anew)."""
        with self.writing() as (connection, stream):
            mine = (chunks.c.stream_id == stream.id) & (chunks.c.lsn == segment.lsn)
            connection.execute(sa.delete(chunks).where(mine))

    def _all_waiting(self, connection: Connection, ids: Sequence[int]) -> bool:
        there = 0
        for at in range(0, len(ids), 500):
            mine = chunks.c.id.in_(ids[at : at + 500]) & chunks.c.lsn.is_(None)
            there += connection.execute(sa.select(sa.func.count()).select_from(chunks).where(mine)).scalar_one()
        return there == len(ids)

    def _replace(
        self,
        connection: Connection,
        stream: int,
        ids: Sequence[int],
        pieces: Sequence[tuple[Chunk, int, int | None]],
        added_ms: int,
    ) -> None:
        for at in range(0, len(ids), 500):
            connection.execute(sa.delete(chunks).where(chunks.c.id.in_(ids[at : at + 500])))
        for chunk, incarnation, lsn in pieces:
            if len(chunk):
                rows = rows_of(chunk, stream=stream, incarnation=incarnation, added_ms=added_ms, lsn=lsn)
                connection.execute(sa.insert(chunks), rows)

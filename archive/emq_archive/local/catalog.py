"""What the local database knows of the remote log: its head, the live segments, which chunks are proven by which."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from emq_archive.chunk import Chunk
from emq_archive.codec import id_key
from emq_archive.local import tables
from emq_archive.local.entries import apply_commit, redactions_of, segment_of
from emq_archive.local.outbox import OutboxRows
from emq_archive.local.reading import ROW, names_of
from emq_archive.log.commit import Commit, Segment
from emq_archive.model import FIRST_ID, LAST_ID, StreamId
from emq_ops.database.statements import insert
from emq_ops.protocol.errors import one_line

streams, chunks, segments = tables.streams, tables.chunks, tables.segments
_MINE = segments.c.stream_id == ROW.with_only_columns(streams.c.id).scalar_subquery()
_SEGMENTS = (
    sa.select(segments)
    .where(_MINE, segments.c.last >= sa.bindparam("low"), segments.c.first <= sa.bindparam("high"))
    .order_by(segments.c.first, segments.c.lsn)
    .limit(sa.bindparam("page", type_=sa.Integer))
)
_NEWEST_EVT = (
    sa.select(segments.c.evt)
    .where(_MINE, segments.c.evt.is_not(None))
    .order_by(segments.c.last.desc(), segments.c.lsn.desc())
    .limit(1)
)


@dataclass(frozen=True, slots=True)
class Known:
    """The log as far as it was read: number and hash of the last commit, the state it belongs to (None: empty), the
    fencing token of the head, the newest incarnation opened in it."""

    lsn: int = 0
    head: str | None = None
    state: str | None = None
    token: int = 0
    opened: int = 0
    committed_ms: int | None = None
    checkpoint_lsn: int = 0
    damage: str | None = None
    damage_in_log: bool | None = None


class Catalog(OutboxRows):
    """The remote as one host knows it, for one stream."""

    # --- the log

    def known(self) -> Known:
        """How far the log was read."""
        with self.reading() as (_, row):
            return Known(*(getattr(row, name) for name in Known.__dataclass_fields__))

    def apply(self, commits: Sequence[tuple[Commit, str]]) -> None:
        """Takes over commits (with their hashes) that follow what is known, in one transaction."""
        if not commits:
            return
        with self.writing() as (connection, stream):
            known = stream.lsn
            for commit, _ in commits:
                if commit.lsn > known:
                    apply_commit(connection, stream.id, commit)
            last, head = commits[-1]
            if last.lsn > known:
                opened = max([stream.opened, *(c.opens for c, _ in commits if c.opens is not None)])
                connection.execute(
                    sa.update(streams)
                    .where(streams.c.id == stream.id)
                    .values(
                        lsn=last.lsn,
                        head=head,
                        state=last.state,
                        token=last.token,
                        committed_ms=last.at,
                        opened=opened,
                        incarnation=max(opened, stream.incarnation),
                    )
                )

    def passed(self, head: StreamId | None) -> None:
        """The stream's first entry is `head` now (None: it is empty): expired records below it can't be read again."""
        mine = sa.delete(tables.let_go)
        with self.writing() as (connection, stream):
            mine = mine.where(tables.let_go.c.stream_id == stream.id)
            connection.execute(mine if head is None else mine.where(tables.let_go.c.last < id_key(*head)))

    def set(self, **values: Any) -> None:
        """Sets columns of the stream's row (``checkpoint_lsn``, ``damage``)."""
        with self.writing() as (connection, stream):
            connection.execute(sa.update(streams).where(streams.c.id == stream.id).values(values))

    def damaged(self, faults: Sequence[str], *, in_log: bool) -> str | None:
        """Remembers what was found wrong (nothing: that all is well), and returns it as remembered. `in_log`: it is
        commits alone, not segments."""
        what = one_line("; ".join(faults[:5]))[:1000] or None
        self.set(damage=what, damage_in_log=in_log if what else None)
        return what

    def incarnation(self) -> int:
        """The incarnation that new records belong to."""
        with self.reading() as (_, row):
            return int(row.incarnation)

    def erased(self) -> dict[bytes, StreamId]:
        """Erased jobs, and up to which id their records never come back."""
        with self.reading() as (connection, row):
            return self.store.erased(connection, row.id)

    def redactions(self) -> list[Any]:
        """Every redaction ever in force."""
        with self.reading() as (connection, row):
            return redactions_of(connection, row.id)

    # --- segments

    def segments(
        self, start: StreamId = FIRST_ID, end: StreamId = LAST_ID, *, job: str | None = None, page: int = 500
    ) -> Iterator[Segment]:
        """The live segments that may hold records of [start, end] (of that job), by first id."""
        wanted = _SEGMENTS
        if job is not None:
            low, high = (self.store.by_bytes(column) for column in (segments.c.job_min, segments.c.job_max))
            wanted = wanted.where((low <= job) & (high >= job) | segments.c.job_min.is_(None))
        asked = {**names_of(self.ref), "low": id_key(*start), "high": id_key(*end), "page": page}
        at: tuple[bytes, int] | None = None
        while True:
            behind = wanted
            if at is not None:
                later = (segments.c.first > at[0]) | ((segments.c.first == at[0]) & (segments.c.lsn > at[1]))
                behind = wanted.where(later)
            with self.store.read() as connection:
                found = connection.execute(behind, asked).all()
            yield from map(segment_of, found)
            if len(found) < page:
                return
            at = (found[-1].first, found[-1].lsn)

    def longest_unchecked(self, limit: int) -> list[Segment]:
        """Live segments, first those that were read and found whole the longest time ago."""
        order = (sa.func.coalesce(segments.c.checked_ms, 0), segments.c.lsn)
        with self.store.read() as connection:
            found = connection.execute(
                sa.select(segments).where(_MINE).order_by(*order).limit(limit), names_of(self.ref)
            )
            return [segment_of(row) for row in found]

    def checked(self, segment: Segment, at_ms: int) -> None:
        """Its bytes were read, and are whole."""
        with self.writing() as (connection, row):
            mine = (segments.c.stream_id == row.id) & (segments.c.lsn == segment.lsn)
            connection.execute(sa.update(segments).where(mine).values(checked_ms=at_ms))

    def view(self, *, everything: bool = False) -> tuple[list[Segment], list[tuple[int, Chunk]]]:
        """At one moment: the live segments, and the outbox (or all that is here) as incarnation and records."""
        with self.reading() as (connection, row):
            live = connection.execute(
                sa.select(segments).where(segments.c.stream_id == row.id).order_by(segments.c.first, segments.c.lsn)
            )
            found = [segment_of(segment) for segment in live]
            wanted = sa.select(chunks.c.incarnation, chunks.c.body).where(chunks.c.stream_id == row.id)
            if not everything:
                wanted = wanted.where(chunks.c.lsn.is_(None))
            bodies = connection.execute(wanted.order_by(chunks.c.first, chunks.c.id)).all()
        return found, [(body.incarnation, Chunk.decode(body.body)) for body in bodies]

    def held(self, segment: Segment) -> bool:
        """Whether every record of it is in the local database too."""
        with self.reading() as (connection, row):
            count = connection.execute(
                sa.select(sa.func.coalesce(sa.func.sum(chunks.c.records), 0)).where(
                    chunks.c.stream_id == row.id, chunks.c.lsn == segment.lsn
                )
            ).scalar_one()
        return int(count) == segment.records

    def newest_evt(self) -> str | None:
        """The ``EVT`` id of the archived record with the highest id among those that have one."""
        with self.store.read() as connection:
            evt: str | None = connection.execute(_NEWEST_EVT, names_of(self.ref)).scalar_one_or_none()
        return evt

    def ends_with(self, evt: str) -> bool:
        """Whether a segment's newest record has that ``EVT`` id."""
        mine = sa.select(segments.c.lsn).where(_MINE, segments.c.evt == evt).limit(1)
        with self.store.read() as connection:
            return connection.execute(mine, names_of(self.ref)).first() is not None

    # --- the manifest, and objects to delete

    def manifest_due(self) -> list[int]:
        """Days whose list of files is behind the log."""
        with self.reading() as (connection, row):
            due = sa.select(tables.manifest.c.day).where(tables.manifest.c.stream_id == row.id)
            return list(connection.execute(due.order_by(tables.manifest.c.day)).scalars())

    def keys(self, day: int) -> list[str]:
        """The live segments' objects of a UTC day (days since 1970), in order."""
        mine = sa.select(segments.c.key).where(_MINE, segments.c.day == day).order_by(segments.c.key)
        with self.store.read() as connection:
            return list(connection.execute(mine, names_of(self.ref)).scalars())

    def manifest_done(self, day: int) -> None:
        """The list of that day is written."""
        with self.writing() as (connection, row):
            done = (tables.manifest.c.stream_id == row.id) & (tables.manifest.c.day == day)
            connection.execute(sa.delete(tables.manifest).where(done))

    def removed(self) -> dict[str, int]:
        """Objects that are in the archive no more, and since when (unix ms)."""
        with self.reading() as (connection, row):
            gone = sa.select(tables.removed.c.key, tables.removed.c.removed_ms)
            found = connection.execute(gone.where(tables.removed.c.stream_id == row.id)).all()
        return {r.key: r.removed_ms for r in found}

    def note_removed(self, keys: Iterable[str], at_ms: int) -> None:
        """Remembers objects that no commit names, so that they may go after the grace."""
        with self.writing() as (connection, row):
            for key in keys:
                new = insert(connection, tables.removed).values(stream_id=row.id, key=key, removed_ms=at_ms)
                connection.execute(new.on_conflict_do_nothing())

    def deleted(self, keys: Sequence[str]) -> None:
        """These objects are gone."""
        with self.writing() as (connection, row):
            for at in range(0, len(keys), 500):
                mine = (tables.removed.c.stream_id == row.id) & tables.removed.c.key.in_(keys[at : at + 500])
                connection.execute(sa.delete(tables.removed).where(mine))

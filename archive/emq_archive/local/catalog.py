"""What the local database knows of the remote log: its head, the live segments, which chunks are proven by which."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from emq_archive import redact
from emq_archive.chunk import Chunk
from emq_archive.codec import id_key, id_of
from emq_archive.local import tables
from emq_archive.local.outbox import OutboxRows, Waiting, ordered
from emq_archive.local.reading import ROW, names_of
from emq_archive.local.rows import rows_of
from emq_archive.local.settle import places_left, places_not_of
from emq_archive.log.commit import Commit, LetGo, Segment
from emq_archive.model import FIRST_ID, LAST_ID, StreamId
from emq_ops.database.statements import insert

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


class Catalog(OutboxRows):
    """The remote as one host knows it, for one stream."""

    # --- the log

    def known(self) -> Known:
        """How far the log was read."""
        with self.store.read() as connection:
            row = self.store.row(connection, self.ref)
        if row is None:
            return Known()
        return Known(
            row.lsn, row.head, row.state, row.token, row.opened, row.committed_ms, row.checkpoint_lsn, row.damage
        )

    def apply(self, commits: Sequence[tuple[Commit, str]]) -> None:
        """Takes over commits (with their hashes) that follow what is known, in one transaction."""
        if not commits:
            return
        with self.store.write() as connection:
            stream = self.store.row(connection, self.ref, lock=True)
            known = stream.lsn
            for commit, _ in commits:
                if commit.lsn > known:
                    self._apply_one(connection, stream.id, commit)
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

    def _apply_one(self, connection: Connection, stream: int, commit: Commit) -> None:
        gone = [lsn for lsn, _ in commit.remove]
        days = {segment.day for segment in commit.add}
        if gone:
            old = (segments.c.stream_id == stream) & segments.c.lsn.in_(gone)
            days.update(connection.execute(sa.select(segments.c.day).where(old)).scalars())
            connection.execute(sa.delete(segments).where(old))
            for _, key in commit.remove:
                new = insert(connection, tables.removed).values(stream_id=stream, key=key, removed_ms=commit.at)
                connection.execute(new.on_conflict_do_nothing())
        for segment in commit.add:
            connection.execute(sa.insert(segments).values(_row(segment, stream)))
            again = (tables.removed.c.stream_id == stream) & (tables.removed.c.key == segment.key)
            connection.execute(sa.delete(tables.removed).where(again))
        mine = (chunks.c.stream_id == stream) & chunks.c.lsn.in_(gone)
        if commit.kind == "expire":
            connection.execute(sa.delete(chunks).where(mine))
        elif gone:
            # Merged or rewritten: the successor proves what its predecessors proved.
            successor = commit.add[0].lsn if commit.add else commit.lsn
            connection.execute(sa.update(chunks).where(mine).values(lsn=successor))
        if commit.let_go is not None:
            self._let_go(connection, stream, commit.lsn, commit.let_go)
        if commit.erased is not None:
            self._erase(connection, stream, commit.erased[0].encode("utf-8"), commit.erased[1])
        if commit.redact is not None:
            self.store.remember_redaction(connection, stream, commit.redact)
        for day in days:
            due = insert(connection, tables.manifest).values(stream_id=stream, day=day)
            connection.execute(due.on_conflict_do_nothing())

    def _erase(self, connection: Connection, stream: int, job: bytes, upto: StreamId) -> None:
        erased = tables.erased
        new = insert(connection, erased).values(stream_id=stream, job=job, upto=id_key(*upto))
        connection.execute(
            new.on_conflict_do_update(index_elements=[erased.c.stream_id, erased.c.job], set_={"upto": id_key(*upto)})
        )
        if connection.dialect.name == "sqlite":  # else its bytes would stand in free pages of the file
            connection.exec_driver_sql("PRAGMA secure_delete=ON").close()
        holds = sa.select(chunks).where(chunks.c.stream_id == stream, chunks.c.job_min <= job, chunks.c.job_max >= job)
        for row in connection.execute(holds).all():
            chunk = Chunk.decode(row.body)
            self._keep(connection, stream, row, chunk, places_left(chunk, {job: upto}))

    def _let_go(self, connection: Connection, stream: int, lsn: int, gone: LetGo) -> None:
        """Expired and adopted records do not come into the archive any more, also not those that wait here."""
        first, last = id_key(*gone.first), id_key(*gone.last)
        row = {"stream_id": stream, "lsn": lsn, "first": first, "last": last, "identities": gone.identities}
        connection.execute(sa.insert(tables.let_go), row)
        expired = redact.split_identities([gone.identities])
        ever = self.store.redactions(connection, stream)
        near = (chunks.c.stream_id == stream) & (chunks.c.last >= first) & (chunks.c.first <= last)
        for found in connection.execute(sa.select(chunks).where(near, chunks.c.lsn.is_(None))).all():
            chunk = Chunk.decode(found.body)
            self._keep(connection, stream, found, chunk, places_not_of(chunk, expired, ever, stored=True))

    def _keep(self, connection: Connection, stream: int, row: Any, chunk: Chunk, places: Sequence[int]) -> None:
        """Only the records at these places stay of a row that holds `chunk`."""
        if len(places) == len(chunk):
            return
        connection.execute(sa.delete(chunks).where(chunks.c.id == row.id))
        if places:
            kept = rows_of(
                chunk.take(places), stream=stream, incarnation=row.incarnation, added_ms=row.added_ms, lsn=row.lsn
            )
            connection.execute(sa.insert(chunks), kept)

    def load(self, snapshot: dict[str, Any]) -> None:
        """Takes over a checkpoint in place of what was known (of the records here, none is proven by it)."""
        with self.store.write() as connection:
            stream = self.store.row(connection, self.ref, lock=True)
            for table in (segments, tables.removed, tables.let_go):
                connection.execute(sa.delete(table).where(table.c.stream_id == stream.id))
            rows = [_row(Segment.of(told, told.pop("lsn")), stream.id) for told in snapshot["segments"]]
            for at in range(0, len(rows), 500):
                connection.execute(sa.insert(segments), rows[at : at + 500])
            for key, at_ms in snapshot["removed"]:
                connection.execute(sa.insert(tables.removed).values(stream_id=stream.id, key=key, removed_ms=at_ms))
            for spec in snapshot["redactions"]:
                self.store.remember_redaction(connection, stream.id, spec)
            for told in snapshot.get("let_go", ()):
                self._let_go(connection, stream.id, told["lsn"], LetGo.of(told))
            for job, upto in snapshot["erased"]:
                self._erase(connection, stream.id, job.encode("utf-8"), tuple(upto))
            connection.execute(
                sa.update(streams)
                .where(streams.c.id == stream.id)
                .values(
                    lsn=snapshot["lsn"],
                    head=snapshot["head"],
                    state=snapshot["state"],
                    token=snapshot["token"],
                    committed_ms=snapshot["at"],
                    opened=snapshot["opened"],
                    incarnation=max(snapshot["opened"], stream.incarnation),
                    checkpoint_lsn=snapshot["lsn"],
                )
            )
            # A row may be proven by a segment that was merged since: it is looked up again.
            live = sa.select(segments.c.lsn).where(segments.c.stream_id == stream.id)
            lost = (chunks.c.stream_id == stream.id) & chunks.c.lsn.is_not(None) & chunks.c.lsn.not_in(live)
            connection.execute(sa.update(chunks).where(lost).values(lsn=None))

    def snapshot(self) -> dict[str, Any]:
        """What a checkpoint says: everything that the commits so far add up to."""
        with self.store.read() as connection:
            row = self.store.row(connection, self.ref)
            mine = row.id
            live = [
                _segment(found)
                for found in connection.execute(
                    sa.select(segments).where(segments.c.stream_id == mine).order_by(segments.c.lsn)
                )
            ]
            gone = connection.execute(
                sa.select(tables.removed.c.key, tables.removed.c.removed_ms)
                .where(tables.removed.c.stream_id == mine)
                .order_by(tables.removed.c.key)
            ).all()
            erased = connection.execute(
                sa.select(tables.erased.c.job, tables.erased.c.upto)
                .where(tables.erased.c.stream_id == mine)
                .order_by(tables.erased.c.job)
            ).all()
            specs = [redact.spec_of(spec) for spec in self.store.redactions(connection, mine)]
            expired = connection.execute(
                sa.select(tables.let_go).where(tables.let_go.c.stream_id == mine).order_by(tables.let_go.c.lsn)
            ).all()
        return {
            "format": 1,
            "lsn": row.lsn,
            "head": row.head,
            "state": row.state,
            "token": row.token,
            "at": row.committed_ms,
            "opened": row.opened,
            "segments": [{"lsn": segment.lsn, **segment.told()} for segment in live],
            "removed": [[found.key, found.removed_ms] for found in gone],
            "erased": [[found.job.decode("utf-8"), list(id_of(found.upto))] for found in erased],
            "redactions": sorted(specs),
            "let_go": [
                {"lsn": found.lsn, **LetGo(id_of(found.first), id_of(found.last), found.identities).told()}
                for found in expired
            ],
        }

    def passed(self, head: StreamId | None) -> None:
        """The stream's first entry is `head` now (None: it is empty): expired records below it can't be read again."""
        mine = sa.delete(tables.let_go)
        with self.store.write() as connection:
            stream = self.store.row(connection, self.ref, lock=True)
            mine = mine.where(tables.let_go.c.stream_id == stream.id)
            connection.execute(mine if head is None else mine.where(tables.let_go.c.last < id_key(*head)))

    def set(self, **values: Any) -> None:
        """Sets columns of the stream's row (``checkpoint_lsn``, ``damage``)."""
        with self.store.write() as connection:
            stream = self.store.row(connection, self.ref, lock=True)
            connection.execute(sa.update(streams).where(streams.c.id == stream.id).values(values))

    def incarnation(self) -> int:
        """The incarnation that new records belong to."""
        with self.store.read() as connection:
            row = self.store.row(connection, self.ref)
        return int(row.incarnation) if row is not None else 0

    def erased(self) -> dict[bytes, StreamId]:
        """Erased jobs, and up to which id their records never come back."""
        with self.store.read() as connection:
            row = self.store.row(connection, self.ref)
            return self.store.erased(connection, row.id) if row is not None else {}

    def redactions(self) -> list[Any]:
        """Every redaction ever in force."""
        with self.store.read() as connection:
            row = self.store.row(connection, self.ref)
            return self.store.redactions(connection, row.id) if row is not None else []

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
            yield from map(_segment, found)
            if len(found) < page:
                return
            at = (found[-1].first, found[-1].lsn)

    def view(self, *, everything: bool = False) -> tuple[list[Segment], list[tuple[int, Chunk]]]:
        """At one moment: the live segments, and the outbox (or all that is here) as incarnation and records."""
        with self.store.read() as connection:
            row = self.store.row(connection, self.ref)
            if row is None:
                return [], []
            live = connection.execute(
                sa.select(segments).where(segments.c.stream_id == row.id).order_by(segments.c.first, segments.c.lsn)
            )
            found = [_segment(segment) for segment in live]
            wanted = sa.select(chunks.c.incarnation, chunks.c.body).where(chunks.c.stream_id == row.id)
            if not everything:
                wanted = wanted.where(chunks.c.lsn.is_(None))
            bodies = connection.execute(wanted.order_by(chunks.c.first, chunks.c.id)).all()
        return found, [(body.incarnation, Chunk.decode(body.body)) for body in bodies]

    def held(self, segment: Segment) -> bool:
        """Whether every record of it is in the local database too."""
        with self.store.read() as connection:
            row = self.store.row(connection, self.ref)
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

    # --- the manifest, and objects to delete

    def manifest_due(self) -> list[int]:
        """Days whose list of files is behind the log."""
        with self.store.read() as connection:
            row = self.store.row(connection, self.ref)
            if row is None:
                return []
            due = sa.select(tables.manifest.c.day).where(tables.manifest.c.stream_id == row.id)
            return list(connection.execute(due.order_by(tables.manifest.c.day)).scalars())

    def keys(self, day: int) -> list[str]:
        """The live segments' objects of a UTC day (days since 1970), in order."""
        mine = sa.select(segments.c.key).where(_MINE, segments.c.day == day).order_by(segments.c.key)
        with self.store.read() as connection:
            return list(connection.execute(mine, names_of(self.ref)).scalars())

    def manifest_done(self, day: int) -> None:
        """The list of that day is written."""
        with self.store.write() as connection:
            row = self.store.row(connection, self.ref, lock=True)
            done = (tables.manifest.c.stream_id == row.id) & (tables.manifest.c.day == day)
            connection.execute(sa.delete(tables.manifest).where(done))

    def removed(self) -> dict[str, int]:
        """Objects that are in the archive no more, and since when (unix ms)."""
        with self.store.read() as connection:
            row = self.store.row(connection, self.ref)
            if row is None:
                return {}
            gone = sa.select(tables.removed.c.key, tables.removed.c.removed_ms)
            found = connection.execute(gone.where(tables.removed.c.stream_id == row.id)).all()
        return {r.key: r.removed_ms for r in found}

    def note_removed(self, keys: Iterable[str], at_ms: int) -> None:
        """Remembers objects that no commit names, so that they may go after the grace."""
        with self.store.write() as connection:
            row = self.store.row(connection, self.ref, lock=True)
            for key in keys:
                new = insert(connection, tables.removed).values(stream_id=row.id, key=key, removed_ms=at_ms)
                connection.execute(new.on_conflict_do_nothing())

    def deleted(self, keys: Sequence[str]) -> None:
        """These objects are gone."""
        with self.store.write() as connection:
            row = self.store.row(connection, self.ref, lock=True)
            for at in range(0, len(keys), 500):
                mine = (tables.removed.c.stream_id == row.id) & tables.removed.c.key.in_(keys[at : at + 500])
                connection.execute(sa.delete(tables.removed).where(mine))


def _row(segment: Segment, stream: int) -> dict[str, Any]:
    return {
        **segment.told(),
        "stream_id": stream,
        "lsn": segment.lsn,
        "first": id_key(*segment.first),
        "last": id_key(*segment.last),
    }


def _segment(row: Any) -> Segment:
    said = {name: getattr(row, name) for name in Segment.__dataclass_fields__}
    return Segment(**{**said, "first": id_of(row.first), "last": id_of(row.last)})


__all__ = ["Catalog", "Known", "Waiting", "ordered"]

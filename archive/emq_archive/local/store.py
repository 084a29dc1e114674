"""The local database: chunks of records and, beside them, how far each stream was folded."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from emq_archive import redact
from emq_archive.chunk import Batch, Chunk
from emq_archive.codec import id_key, id_of
from emq_archive.local import settle, tables
from emq_archive.local.entries import redactions_of, remember_redaction
from emq_archive.local.reading import ROW, ChunkReader, names_of
from emq_archive.local.rows import rows_of
from emq_archive.model import Frontier, Policy, StreamId, StreamRef
from emq_archive.reports import Added, Outbox, Stats, Unstorable
from emq_ops.database.engine import Database, open_database
from emq_ops.database.migrations import Migrations
from emq_ops.database.profile import Profile
from emq_ops.database.scrub import scrub
from emq_ops.database.space import give_back

streams, chunks, segments = tables.streams, tables.chunks, tables.segments
_OUTBOX = sa.select(
    sa.func.coalesce(sa.func.sum(chunks.c.records), 0),
    sa.func.coalesce(sa.func.sum(chunks.c.weight), 0),
    sa.func.min(chunks.c.added_ms),
    sa.func.min(chunks.c.first),
).where(chunks.c.stream_id == ROW.with_only_columns(streams.c.id).scalar_subquery(), chunks.c.lsn.is_(None))
_OVERLAPPING = (
    sa.select(chunks.c.incarnation, chunks.c.body)
    .where(
        chunks.c.stream_id == sa.bindparam("stream"),
        chunks.c.last >= sa.bindparam("low"),
        chunks.c.first <= sa.bindparam("high"),
    )
    .order_by(chunks.c.first)
)
_ERASED = sa.select(tables.erased.c.job, tables.erased.c.upto).where(
    tables.erased.c.stream_id == sa.bindparam("stream")
)
_LET_GO = sa.select(tables.let_go.c.identities).where(
    tables.let_go.c.stream_id == sa.bindparam("stream"),
    tables.let_go.c.last >= sa.bindparam("low"),
    tables.let_go.c.first <= sa.bindparam("high"),
)
_FOLDED = sa.update(streams).where(streams.c.id == sa.bindparam("which")).values(frontier=sa.bindparam("text"))


PROFILE = Profile(
    name="local database",
    option="--local",
    application="emq-ops archive",
    when_lost="move it away and run `emq-ops archive restore`",
    busy=30,
    statement=120,
    idle=600,  # a segment is sent inside
)
LOCAL = Migrations("emq_archive.local", "archive_version", 7_305_601_120, tables.metadata, tables.identity)


class SqlStore(ChunkReader):
    """The database of one host, or of several. Thread-safe. A forked child must open its own."""

    def __init__(self, database: Database, state: str) -> None:
        super().__init__(database)
        self._state = state

    def state(self) -> str:
        """The UUID of this database, for use where it is the state (no other state database is named)."""
        return self._state

    def by_bytes(self, column: sa.Column[Any]) -> sa.ColumnElement[Any]:
        """A column of texts, to be compared byte by byte; PostgreSQL goes by the database's own language."""
        return sa.collate(column, "C") if self.engine.dialect.name == "postgresql" else column

    def scrub(self) -> list[str]:
        """What was erased leaves free pages and SQLite's write-ahead log too. Returns what could not be done, a
        sentence each."""
        return scrub(self.database, [tables.chunks.name])

    def give_back_space(self) -> None:
        """Pages that pruning left free go back to the file system, some at a time."""
        give_back(self.database)

    # --- writing

    def add(self, ref: StreamRef, batch: Batch, frontier: Frontier | None, policy: Policy) -> Added:
        """Stores a batch and the frontier (None: leaves it) in one transaction. Adding a record again changes nothing.
        A commit costs an fsync, so make a batch 10,000 records or some MiB. Raises DatabaseError,
        DatabaseUnreachableError, DatabaseFullError; then nothing was changed."""
        chunk = batch.chunk()
        unstorable: tuple[Unstorable, ...] = ()
        if chunk.weight > policy.max_record_bytes:
            kept, unstorable = settle.too_large(chunk, policy.max_record_bytes)
            chunk = chunk.take(kept)
        added_ms = frontier.updated_ms if frontier else time.time_ns() // 1_000_000
        total = Added(unstorable=unstorable)
        with self.write() as connection:
            stream = self.row(connection, ref, lock=True)
            if policy.redact:
                remember_redaction(connection, stream.id, redact.spec_of(policy.redact))
            for number, layer in enumerate(settle.layers(chunk)):
                if number:
                    stream = self.row(connection, ref)  # the layer before may have opened an incarnation
                total = self._add_layer(connection, ref, stream, layer, policy, added_ms, total)
            if frontier is not None:
                stored = _frontier(stream.frontier)
                folded = (stored.folded if stored else 0) + total.new
                text = json.dumps(asdict(replace(frontier, folded=folded)))
                connection.execute(_FOLDED, {"which": stream.id, "text": text})
        return total

    def _add_layer(
        self,
        connection: Connection,
        ref: StreamRef,
        stream: Any,
        layer: Chunk,
        policy: Policy,
        added_ms: int,
        total: Added,
    ) -> Added:
        gone = self.erased(connection, stream.id)
        original = layer.take(settle.places_left(layer, gone)) if gone else layer
        total = replace(total, erased=total.erased + len(layer) - len(original))
        if len(original) and (expired := self._let_go(connection, stream.id, original)):
            left = settle.places_not_of(original, expired, redactions_of(connection, stream.id), stored=False)
            total = replace(total, known=total.known + len(original) - len(left))
            original = original.take(left)
        if not len(original):
            return total
        fresh = original
        if policy.redact:
            fresh = Chunk.of(redact.apply(original.entries(), policy.redact, ref.kind))
        stored = self._overlapping(connection, stream.id, fresh)
        ever = redactions_of(connection, stream.id) if stored else []
        sifted = settle.sift(fresh, original, stored, ever, ref.kind)
        for incarnation, places in ((stream.incarnation, sifted.plain), *sifted.reborn.items()):
            if places:
                part = fresh.take(places)
                rows = rows_of(part, stream=stream.id, incarnation=incarnation, added_ms=added_ms, lsn=None)
                connection.execute(sa.insert(chunks), rows)
        if sifted.reborn:
            newest = max(stream.incarnation, *sifted.reborn)
            connection.execute(sa.update(streams).where(streams.c.id == stream.id).values(incarnation=newest))
        reborn = sum(map(len, sifted.reborn.values()))
        return replace(
            total,
            new=total.new + len(sifted.plain) + reborn,
            known=total.known + sifted.known,
            reborn=total.reborn + reborn,
        )

    def _overlapping(self, connection: Connection, stream: int, fresh: Chunk) -> list[tuple[int, Chunk]]:
        asked = {"stream": stream, "low": id_key(*fresh.first), "high": id_key(*fresh.last)}
        return [(row.incarnation, Chunk.decode(row.body)) for row in connection.execute(_OVERLAPPING, asked)]

    def _let_go(self, connection: Connection, stream: int, chunk: Chunk) -> set[bytes]:
        """What the expired and adopted records near these are known by."""
        asked = {"stream": stream, "low": id_key(*chunk.first), "high": id_key(*chunk.last)}
        return redact.split_identities(connection.execute(_LET_GO, asked).scalars())

    def erased(self, connection: Connection, stream: int) -> dict[bytes, StreamId]:
        """Erased jobs, and up to which id their records never come back."""
        return {row.job: id_of(row.upto) for row in connection.execute(_ERASED, {"stream": stream})}

    # --- reading

    def frontier(self, ref: StreamRef) -> Frontier | None:
        """What was stored last, None at first."""
        with self.read() as connection:
            stream = self.row(connection, ref)
        return _frontier(stream.frontier) if stream is not None else None

    def outbox(self, ref: StreamRef) -> Outbox:
        """What is not shipped; costs no scan of the records."""
        with self.read() as connection:
            found = connection.execute(_OUTBOX, names_of(ref)).one()
        return Outbox(int(found[0]), int(found[1]), found[2], id_of(found[3]) if found[3] is not None else None)

    def stats(self, ref: StreamRef) -> Stats:
        """Rows, segments and the last commit of a stream."""
        with self.read() as connection:
            stream = self.row(connection, ref)
            if stream is None:
                return Stats()
            mine = chunks.c.stream_id == stream.id
            total, weight, first, last = connection.execute(
                sa.select(
                    sa.func.coalesce(sa.func.sum(chunks.c.records), 0),
                    sa.func.coalesce(sa.func.sum(sa.func.length(chunks.c.body)), 0),
                    sa.func.min(chunks.c.first),
                    sa.func.max(chunks.c.last),
                ).where(mine)
            ).one()
            waiting = connection.execute(
                sa.select(sa.func.coalesce(sa.func.sum(chunks.c.records), 0)).where(mine, chunks.c.lsn.is_(None))
            ).scalar_one()
            remote = connection.execute(
                sa.select(
                    sa.func.count(),
                    sa.func.coalesce(sa.func.sum(segments.c.records), 0),
                    sa.func.coalesce(sa.func.sum(segments.c.bytes), 0),
                ).where(segments.c.stream_id == stream.id)
            ).one()
        return Stats(
            rows=int(total),
            unshipped=int(waiting),
            bytes=int(weight),
            oldest=id_of(first) if first is not None else None,
            newest=id_of(last) if last is not None else None,
            segments=int(remote[0]),
            remote_records=int(remote[1]),
            remote_bytes=int(remote[2]),
            last_lsn=int(stream.lsn),
            last_commit_ms=stream.committed_ms,
        )

    def remote_totals(self) -> tuple[int, int, int]:
        """Segments of all streams that this database knows in the store, their records and their bytes."""
        wanted = sa.select(
            sa.func.count(),
            sa.func.coalesce(sa.func.sum(segments.c.records), 0),
            sa.func.coalesce(sa.func.sum(segments.c.bytes), 0),
        )
        with self.read() as connection:
            count, records, size = connection.execute(wanted).one()
        return int(count), int(records), int(size)

    def streams(self, queue: str | None = None) -> list[StreamRef]:
        """What this database has heard of (of one queue)."""
        wanted = sa.select(streams.c.queue, streams.c.stream, streams.c.kind)
        if queue is not None:
            wanted = wanted.where(streams.c.queue == queue)
        with self.read() as connection:
            found = connection.execute(wanted).all()
        return sorted(StreamRef(row.queue, row.stream, row.kind) for row in found)

    def close(self) -> None:
        """Gives back every connection."""
        self.database.close()

    def __enter__(self) -> SqlStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_local(url: str, renew: Callable[[], str] | None = None) -> SqlStore:
    """Opens the local database at `url` (``sqlite:///file``, ``postgresql://...``), making it or bringing it up to this
    version where needed. `renew`: gives the URL with the password that is good now. Raises BadInputError,
    DatabaseError, DatabaseUnreachableError."""
    database = open_database(url, PROFILE, renew)
    try:
        return SqlStore(database, LOCAL.open(database))
    except BaseException:
        database.close()
        raise


def _frontier(text: str | None) -> Frontier | None:
    if text is None:
        return None
    told = json.loads(text)
    for name in ("last", "first", "last_generated"):
        told[name] = tuple(told[name]) if told[name] is not None else None
    return Frontier(**told)

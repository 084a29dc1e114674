"""What each entry of the log does to the local database, inside one transaction of its caller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from emq_archive import redact
from emq_archive.chunk import Chunk
from emq_archive.codec import id_key, id_of
from emq_archive.local import tables
from emq_archive.local.rows import rows_of
from emq_archive.local.settle import places_left, places_not_of
from emq_archive.log.commit import Commit, LetGo, Segment
from emq_archive.model import Redact, StreamId
from emq_ops.database.scrub import delete_securely
from emq_ops.database.statements import insert

chunks, segments = tables.chunks, tables.segments


def apply_commit(connection: Connection, stream: int, commit: Commit) -> None:
    """Takes over one entry that follows what is known."""
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
        # Whoever commits has read it back.
        connection.execute(sa.insert(segments).values(**segment_row(segment, stream), checked_ms=commit.at))
        again = (tables.removed.c.stream_id == stream) & (tables.removed.c.key == segment.key)
        connection.execute(sa.delete(tables.removed).where(again))
    mine = (chunks.c.stream_id == stream) & chunks.c.lsn.in_(gone)
    if commit.kind == "loss":
        connection.execute(sa.update(chunks).where(mine).values(lsn=None))  # what is left here is shipped again
    elif commit.kind == "expire":
        connection.execute(sa.delete(chunks).where(mine))
    elif gone:
        # Merged or rewritten: the successor proves what its predecessors proved.
        successor = commit.add[0].lsn if commit.add else commit.lsn
        connection.execute(sa.update(chunks).where(mine).values(lsn=successor))
    if commit.let_go is not None:
        let_go(connection, stream, commit.lsn, commit.let_go)
    if commit.erased is not None:
        erase(connection, stream, commit.erased[0].encode("utf-8"), commit.erased[1])
    if commit.redact is not None:
        remember_redaction(connection, stream, commit.redact)
    for day in days:
        due = insert(connection, tables.manifest).values(stream_id=stream, day=day)
        connection.execute(due.on_conflict_do_nothing())


def erase(connection: Connection, stream: int, job: bytes, upto: StreamId) -> None:
    """Records of a job up to an id go, and never come back."""
    erased = tables.erased
    new = insert(connection, erased).values(stream_id=stream, job=job, upto=id_key(*upto))
    connection.execute(
        new.on_conflict_do_update(index_elements=[erased.c.stream_id, erased.c.job], set_={"upto": id_key(*upto)})
    )
    delete_securely(connection)
    holds = sa.select(chunks).where(chunks.c.stream_id == stream, chunks.c.job_min <= job, chunks.c.job_max >= job)
    for row in connection.execute(holds).all():
        chunk = Chunk.decode(row.body)
        _keep(connection, stream, row, chunk, places_left(chunk, {job: upto}))


def let_go(connection: Connection, stream: int, lsn: int, gone: LetGo) -> None:
    """Expired and adopted records do not come into the archive any more, also not those that wait here."""
    first, last = id_key(*gone.first), id_key(*gone.last)
    row = {"stream_id": stream, "lsn": lsn, "first": first, "last": last, "identities": gone.identities}
    connection.execute(sa.insert(tables.let_go), row)
    expired = redact.split_identities([gone.identities])
    ever = redactions_of(connection, stream)
    near = (chunks.c.stream_id == stream) & (chunks.c.last >= first) & (chunks.c.first <= last)
    for found in connection.execute(sa.select(chunks).where(near, chunks.c.lsn.is_(None))).all():
        chunk = Chunk.decode(found.body)
        _keep(connection, stream, found, chunk, places_not_of(chunk, expired, ever, stored=True))


def _keep(connection: Connection, stream: int, row: Any, chunk: Chunk, places: Sequence[int]) -> None:
    """Only the records at these places stay of a row that holds `chunk`."""
    if len(places) == len(chunk):
        return
    connection.execute(sa.delete(chunks).where(chunks.c.id == row.id))
    if places:
        kept = rows_of(
            chunk.take(places), stream=stream, incarnation=row.incarnation, added_ms=row.added_ms, lsn=row.lsn
        )
        connection.execute(sa.insert(chunks), kept)


def remember_redaction(connection: Connection, stream: int, spec: str) -> None:
    """Notes that records were stored under this redaction."""
    new = insert(connection, tables.redactions).values(stream_id=stream, spec=spec)
    connection.execute(new.on_conflict_do_nothing())


def redactions_of(connection: Connection, stream: int) -> list[Redact]:
    """Every redaction ever in force."""
    wanted = sa.select(tables.redactions.c.spec).where(tables.redactions.c.stream_id == stream)
    return [redact.from_spec(spec) for spec in connection.execute(wanted).scalars()]


def segment_row(segment: Segment, stream: int) -> dict[str, Any]:
    """A segment as a row of the database."""
    return {
        **segment.told(),
        "stream_id": stream,
        "lsn": segment.lsn,
        "first": id_key(*segment.first),
        "last": id_key(*segment.last),
    }


def segment_of(row: Any) -> Segment:
    """Back from its row."""
    said = {name: getattr(row, name) for name in Segment.__dataclass_fields__}
    return Segment(**{**said, "first": id_of(row.first), "last": id_of(row.last)})

"""What the commits so far add up to, as a checkpoint of the log says it, out of the local database and into it."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from emq_archive import redact
from emq_archive.codec import id_of
from emq_archive.local import entries, tables
from emq_archive.local.catalog import Catalog
from emq_archive.log.commit import LetGo, Segment
from emq_archive.log.hostile import number, text
from emq_archive.model import parse_id

streams, chunks, segments = tables.streams, tables.chunks, tables.segments


def load(catalog: Catalog, snapshot: dict[str, Any]) -> None:
    """Takes over a checkpoint in place of what was known (of the records here, none is proven by it)."""
    with catalog.writing() as (connection, stream):
        for table in (segments, tables.removed, tables.let_go):
            connection.execute(sa.delete(table).where(table.c.stream_id == stream.id))
        rows = [entries.segment_row(Segment.of(told, told.pop("lsn")), stream.id) for told in snapshot["segments"]]
        for at in range(0, len(rows), 500):
            connection.execute(sa.insert(segments), rows[at : at + 500])
        for key, at_ms in snapshot["removed"]:
            connection.execute(sa.insert(tables.removed).values(stream_id=stream.id, key=key, removed_ms=at_ms))
        for spec in snapshot["redactions"]:
            entries.remember_redaction(connection, stream.id, spec)
        for told in snapshot.get("let_go", ()):
            entries.let_go(connection, stream.id, told["lsn"], LetGo.of(told))
        for job, upto in snapshot["erased"]:
            entries.erase(connection, stream.id, job.encode("utf-8"), tuple(upto))
        known = {name: snapshot[name] for name in ("lsn", "head", "state", "token", "opened")}
        known["incarnation"] = max(snapshot["opened"], stream.incarnation)
        known.update(committed_ms=snapshot["at"], checkpoint_lsn=snapshot["lsn"])
        connection.execute(sa.update(streams).where(streams.c.id == stream.id).values(known))
        # A row may be proven by a segment that was merged since: it is looked up again.
        live = sa.select(segments.c.lsn).where(segments.c.stream_id == stream.id)
        lost = (chunks.c.stream_id == stream.id) & chunks.c.lsn.is_not(None) & chunks.c.lsn.not_in(live)
        connection.execute(sa.update(chunks).where(lost).values(lsn=None))


def check_snapshot(told: dict[str, Any]) -> None:
    """Raises one of MISREAD where a checkpoint says what no writer of ours says."""
    for name in ("lsn", "token", "at", "opened"):
        number(told, name)
    text(told, "state")
    for segment in told["segments"]:
        said = dict(segment)
        Segment.of(said, number({"lsn": said.pop("lsn")}, "lsn"))
    for key, at_ms in told["removed"]:
        text({"key": key}, "key")
        number({"removed": at_ms}, "removed")
    for job, upto in told["erased"]:
        text({"erased": job}, "erased")
        parse_id(f"{upto[0]}-{upto[1]}")
    for gone in told.get("let_go", ()):
        number(gone, "lsn")
        LetGo.of(gone)


def snapshot_of(catalog: Catalog) -> dict[str, Any]:
    """What a checkpoint says: everything that the commits so far add up to."""
    with catalog.reading() as (connection, row):

        def all_of(table: sa.Table, order: str) -> Any:
            return connection.execute(
                sa.select(table).where(table.c.stream_id == row.id).order_by(table.c[order])
            ).all()

        live, gone = all_of(segments, "lsn"), all_of(tables.removed, "key")
        erased, let_go = all_of(tables.erased, "job"), all_of(tables.let_go, "lsn")
        specs = [redact.spec_of(spec) for spec in entries.redactions_of(connection, row.id)]
    return {
        "format": 1,
        "lsn": row.lsn,
        "head": row.head,
        "state": row.state,
        "token": row.token,
        "at": row.committed_ms,
        "opened": row.opened,
        "segments": [{"lsn": found.lsn, **entries.segment_of(found).told()} for found in live],
        "removed": [[found.key, found.removed_ms] for found in gone],
        "erased": [[found.job.decode("utf-8"), list(id_of(found.upto))] for found in erased],
        "redactions": sorted(specs),
        "let_go": [
            {"lsn": found.lsn, **LetGo(id_of(found.first), id_of(found.last), found.identities).told()}
            for found in let_go
        ],
    }

"""The tables of the local database. Ids are 16 bytes whose order is the stream's order (`codec.id_key`)."""

from __future__ import annotations

import sqlalchemy as sa

SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
metadata = sa.MetaData()

streams = sa.Table(
    "archive_streams",
    metadata,
    sa.Column("id", SERIAL, primary_key=True),
    sa.Column("queue", sa.Text, nullable=False),
    sa.Column("stream", sa.Text, nullable=False),
    sa.Column("kind", sa.String(8), nullable=False),
    sa.Column("frontier", sa.Text),  # JSON, see store.py
    sa.Column("incarnation", sa.Integer, nullable=False, server_default="0"),  # of what is read next
    # What this database knows of the remote log:
    sa.Column("lsn", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("opened", sa.Integer, nullable=False, server_default="0"),  # the newest incarnation in the log
    sa.Column("head", sa.Text),
    sa.Column("state", sa.Text),
    sa.Column("token", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("committed_ms", sa.BigInteger),
    sa.Column("checkpoint_lsn", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("damage", sa.Text),  # what `verify` found, until it finds nothing
    sa.Column("damage_in_log", sa.Boolean),  # of the log alone: over once its commits are whole again
    sa.UniqueConstraint("queue", "stream", "kind"),
)

chunks = sa.Table(
    "archive_chunks",
    metadata,
    sa.Column("id", SERIAL, primary_key=True),
    sa.Column("stream_id", SERIAL, sa.ForeignKey("archive_streams.id"), nullable=False),
    sa.Column("first", sa.LargeBinary(16), nullable=False),
    sa.Column("last", sa.LargeBinary(16), nullable=False),
    sa.Column("incarnation", sa.Integer, nullable=False),
    sa.Column("day", sa.BigInteger, nullable=False),  # days since 1970, one a chunk
    sa.Column("records", sa.Integer, nullable=False),
    sa.Column("weight", sa.BigInteger, nullable=False),
    sa.Column("job_min", sa.LargeBinary),
    sa.Column("job_max", sa.LargeBinary),
    sa.Column("added_ms", sa.BigInteger, nullable=False),
    sa.Column("lsn", sa.BigInteger),  # the commit whose segment, read back, holds every record of it; NULL: outbox
    sa.Column("body", sa.LargeBinary, nullable=False),  # chunk.py
    sa.Index("archive_chunks_by_last", "stream_id", "last"),
    # WHERE lsn IS NULL, which the migration says: to say it here would load both dialects of SQLAlchemy.
    sa.Index("archive_chunks_outbox", "stream_id", "first"),
    sa.Index("archive_chunks_by_lsn", "stream_id", "lsn"),
)

segments = sa.Table(
    "archive_segments",
    metadata,
    sa.Column("stream_id", SERIAL, sa.ForeignKey("archive_streams.id"), primary_key=True),
    sa.Column("lsn", sa.BigInteger, primary_key=True),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("sha256", sa.String(64), nullable=False),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    sa.Column("weight", sa.BigInteger, nullable=False),
    sa.Column("records", sa.BigInteger, nullable=False),
    sa.Column("first", sa.LargeBinary(16), nullable=False),
    sa.Column("last", sa.LargeBinary(16), nullable=False),
    sa.Column("incarnation", sa.Integer, nullable=False),
    sa.Column("day", sa.BigInteger, nullable=False),
    sa.Column("time_min", sa.BigInteger, nullable=False),
    sa.Column("time_max", sa.BigInteger, nullable=False),
    sa.Column("job_min", sa.Text),
    sa.Column("job_max", sa.Text),
    sa.Column("evt", sa.Text),
    sa.Column("checked_ms", sa.BigInteger),  # when its bytes were last read and found whole
    sa.Index("archive_segments_by_last", "stream_id", "last"),
)

removed = sa.Table(
    "archive_removed",
    metadata,
    sa.Column("stream_id", SERIAL, sa.ForeignKey("archive_streams.id"), primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),  # an object that a commit took out, until it is deleted
    sa.Column("removed_ms", sa.BigInteger, nullable=False),
)

erased = sa.Table(
    "archive_erased",
    metadata,
    sa.Column("stream_id", SERIAL, sa.ForeignKey("archive_streams.id"), primary_key=True),
    sa.Column("job", sa.LargeBinary, primary_key=True),
    sa.Column("upto", sa.LargeBinary(16), nullable=False),  # records of the job up to this id never come back
)

let_go = sa.Table(
    "archive_let_go",
    metadata,
    sa.Column("stream_id", SERIAL, sa.ForeignKey("archive_streams.id"), primary_key=True),
    sa.Column("lsn", sa.BigInteger, primary_key=True),  # the commit that says so
    sa.Column("first", sa.LargeBinary(16), nullable=False),
    sa.Column("last", sa.LargeBinary(16), nullable=False),
    sa.Column("identities", sa.LargeBinary, nullable=False),  # records that must not be archived again (redact.py)
)

redactions = sa.Table(
    "archive_redactions",
    metadata,
    sa.Column("stream_id", SERIAL, sa.ForeignKey("archive_streams.id"), primary_key=True),
    sa.Column("spec", sa.String(2000), primary_key=True),  # JSON {"drop": [...], "hash": [...]}, ever in force
)

manifest = sa.Table(
    "archive_manifest_due",
    metadata,
    sa.Column("stream_id", SERIAL, sa.ForeignKey("archive_streams.id"), primary_key=True),
    sa.Column("day", sa.BigInteger, primary_key=True),  # its list of files is behind the log
)

identity = sa.Table(
    "archive_identity",
    metadata,
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)

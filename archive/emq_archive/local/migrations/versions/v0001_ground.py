"""The ground: streams and their frontiers, chunks of records, what is known of the remote log."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "archive_identity",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("value", sa.Text(), nullable=False),
    )
    op.create_table(
        "archive_streams",
        sa.Column("id", SERIAL, primary_key=True),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("frontier", sa.Text()),
        sa.Column("incarnation", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("lsn", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("opened", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("head", sa.Text()),
        sa.Column("state", sa.Text()),
        sa.Column("token", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("committed_ms", sa.BigInteger()),
        sa.Column("checkpoint_lsn", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("adopted", sa.LargeBinary(16)),
        sa.Column("adopted_life", sa.Integer()),
        sa.Column("damage", sa.Text()),
        sa.UniqueConstraint("queue", "stream", "kind"),
    )
    op.create_table(
        "archive_chunks",
        sa.Column("id", SERIAL, primary_key=True),
        sa.Column("stream_id", SERIAL, sa.ForeignKey("archive_streams.id"), nullable=False),
        sa.Column("first", sa.LargeBinary(16), nullable=False),
        sa.Column("last", sa.LargeBinary(16), nullable=False),
        sa.Column("incarnation", sa.Integer(), nullable=False),
        sa.Column("day", sa.BigInteger(), nullable=False),
        sa.Column("records", sa.Integer(), nullable=False),
        sa.Column("weight", sa.BigInteger(), nullable=False),
        sa.Column("job_min", sa.LargeBinary()),
        sa.Column("job_max", sa.LargeBinary()),
        sa.Column("added_ms", sa.BigInteger(), nullable=False),
        sa.Column("lsn", sa.BigInteger()),
        sa.Column("body", sa.LargeBinary(), nullable=False),
    )
    op.create_index("archive_chunks_by_last", "archive_chunks", ["stream_id", "last"])
    op.create_index("archive_chunks_by_lsn", "archive_chunks", ["stream_id", "lsn"])
    op.create_index(
        "archive_chunks_outbox",
        "archive_chunks",
        ["stream_id", "first"],
        sqlite_where=sa.text("lsn IS NULL"),
        postgresql_where=sa.text("lsn IS NULL"),
    )
    op.create_table(
        "archive_segments",
        sa.Column("stream_id", SERIAL, sa.ForeignKey("archive_streams.id"), primary_key=True),
        sa.Column("lsn", sa.BigInteger(), primary_key=True),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("weight", sa.BigInteger(), nullable=False),
        sa.Column("records", sa.BigInteger(), nullable=False),
        sa.Column("first", sa.LargeBinary(16), nullable=False),
        sa.Column("last", sa.LargeBinary(16), nullable=False),
        sa.Column("incarnation", sa.Integer(), nullable=False),
        sa.Column("day", sa.BigInteger(), nullable=False),
        sa.Column("time_min", sa.BigInteger(), nullable=False),
        sa.Column("time_max", sa.BigInteger(), nullable=False),
        sa.Column("job_min", sa.Text()),
        sa.Column("job_max", sa.Text()),
        sa.Column("evt", sa.Text()),
    )
    op.create_index("archive_segments_by_last", "archive_segments", ["stream_id", "last"])
    op.create_table(
        "archive_removed",
        sa.Column("stream_id", SERIAL, sa.ForeignKey("archive_streams.id"), primary_key=True),
        sa.Column("key", sa.Text(), primary_key=True),
        sa.Column("removed_ms", sa.BigInteger(), nullable=False),
    )
    op.create_table(
        "archive_erased",
        sa.Column("stream_id", SERIAL, sa.ForeignKey("archive_streams.id"), primary_key=True),
        sa.Column("job", sa.LargeBinary(), primary_key=True),
        sa.Column("upto", sa.LargeBinary(16), nullable=False),
    )
    op.create_table(
        "archive_redactions",
        sa.Column("stream_id", SERIAL, sa.ForeignKey("archive_streams.id"), primary_key=True),
        sa.Column("spec", sa.String(2000), primary_key=True),
    )
    op.create_table(
        "archive_manifest_due",
        sa.Column("stream_id", SERIAL, sa.ForeignKey("archive_streams.id"), primary_key=True),
        sa.Column("day", sa.BigInteger(), primary_key=True),
    )

"""Records that expired, or were adopted, while they stood in the stream: they are not archived again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "archive_let_go",
        sa.Column("stream_id", SERIAL, sa.ForeignKey("archive_streams.id"), primary_key=True),
        sa.Column("lsn", sa.BigInteger(), primary_key=True),
        sa.Column("first", sa.LargeBinary(16), nullable=False),
        sa.Column("last", sa.LargeBinary(16), nullable=False),
        sa.Column("identities", sa.LargeBinary(), nullable=False),
    )
    op.drop_column("archive_streams", "adopted")
    op.drop_column("archive_streams", "adopted_life")

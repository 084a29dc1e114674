"""The lives of a SQLite file: by them a copy of it is told from the one that leads."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "state_lives",
        sa.Column("life", sa.String(32), primary_key=True),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("place", sa.String(128), nullable=False),
        sa.Column("since_ms", sa.BigInteger(), nullable=False),
    )

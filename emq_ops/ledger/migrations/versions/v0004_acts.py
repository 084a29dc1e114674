"""Stalls one by one, and acts on selected jobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
ID = sa.String(length=14).with_variant(sa.VARCHAR(length=14, collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "stalls",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("queue", sa.String(length=255), nullable=False),
        sa.Column("job", ID, nullable=False),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("deadline_ms", sa.BigInteger(), nullable=False),
        sa.Column("outcome", sa.String(length=16), nullable=False),
        sa.Column("stalls", sa.BigInteger(), nullable=False),
        sa.Column("evidence", sa.String(length=64), nullable=False),
        sa.Column("interruption", SERIAL, nullable=True),
        sa.Column("run", ID, nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("stalls_by_job", "stalls", ["job", "id"], unique=False)
    op.create_index("stalls_by_run", "stalls", ["run", "id"], unique=False)
    op.create_index("stalls_by_time", "stalls", ["at_ms"], unique=False)
    op.create_table(
        "act_items",
        sa.Column("run", ID, nullable=False),
        sa.Column("job", ID, nullable=False),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.Column("stalls", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("whole", sa.LargeBinary(), nullable=True),
        sa.Column("undone_by", ID, nullable=True),
        sa.PrimaryKeyConstraint("run", "job"),
    )
    op.create_index("act_items_by_job", "act_items", ["job"], unique=False)
    op.create_index("act_items_by_time", "act_items", ["at_ms"], unique=False)

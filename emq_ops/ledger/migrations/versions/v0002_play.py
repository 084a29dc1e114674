"""Runs of playbooks: what was asked, who runs it, and what became of each task."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

ID = sa.String(length=14).with_variant(sa.VARCHAR(length=14, collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "play_runs",
        sa.Column("run", ID, nullable=False),
        sa.Column("playbook", sa.Text(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("options", sa.Text(), nullable=False),
        sa.Column("queues", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("claim", sa.BigInteger(), nullable=False),
        sa.Column("beat_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["run"], ["runs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run"),
    )
    op.create_table(
        "play_steps",
        sa.Column("run", ID, nullable=False),
        sa.Column("task", sa.String(length=600), nullable=False),
        sa.Column("queue", sa.String(length=255), nullable=False),
        sa.Column("item", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("plan", sa.Text(), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["run"], ["play_runs.run"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run", "task", "queue", "item"),
    )

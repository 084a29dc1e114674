"""What daemons remember of each task, and which daemons live."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "task_marks",
        sa.Column("queue", sa.String(length=255), nullable=False),
        sa.Column("task", sa.String(length=255), nullable=False),
        sa.Column("due_ms", sa.BigInteger(), nullable=False),
        sa.Column("next_ms", sa.BigInteger(), nullable=True),
        sa.Column("started_ms", sa.BigInteger(), nullable=True),
        sa.Column("ended_ms", sa.BigInteger(), nullable=True),
        sa.Column("late_ms", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("runs", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("missed", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("skipped", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("failures", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("holder", sa.String(length=255), nullable=False, server_default=""),
        sa.PrimaryKeyConstraint("queue", "task"),
    )
    op.create_table(
        "daemons",
        sa.Column("holder", sa.String(length=255), nullable=False),
        sa.Column("started_ms", sa.BigInteger(), nullable=False),
        sa.Column("seen_ms", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=True),
        sa.Column("leads", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("facts", sa.Text(), nullable=False, server_default="{}"),
        sa.PrimaryKeyConstraint("holder"),
    )

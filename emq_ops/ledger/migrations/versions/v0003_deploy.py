"""Deploying: revisions, the state lock, the journal of applies, bounds of the first pass after one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "revisions",
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("made_ms", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("who", sa.String(length=255), nullable=False),
        sa.Column("files", sa.Text(), server_default="[]", nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("summary", sa.Text(), server_default="{}", nullable=False),
        sa.Column("document", sa.LargeBinary(), nullable=False),
        sa.Column("plan", sa.LargeBinary(), nullable=False),
        sa.Column("why", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("number"),
    )
    op.create_table(
        "state_lock",
        sa.Column("name", sa.String(length=16), nullable=False),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("what", sa.String(length=64), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("machine", sa.String(length=64), nullable=False),
        sa.Column("pid", sa.BigInteger(), nullable=False),
        sa.Column("start", sa.String(length=64), nullable=False),
        sa.Column("since_ms", sa.BigInteger(), nullable=False),
        sa.Column("until_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "applies",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("base", sa.BigInteger(), nullable=True),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("holder", sa.String(length=255), nullable=False),
        sa.Column("started_ms", sa.BigInteger(), nullable=False),
        sa.Column("ended_ms", sa.BigInteger(), nullable=True),
        sa.Column("steps", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("applies_by_status", "applies", ["status"], unique=False)
    op.create_table(
        "apply_steps",
        sa.Column("apply", SERIAL, nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("queue", sa.String(length=255), nullable=False),
        sa.Column("setting", sa.Text(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("before", sa.Text(), nullable=False),
        sa.Column("after", sa.Text(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["apply"], ["applies.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("apply", "step"),
    )
    op.create_table(
        "bounds",
        sa.Column("queue", sa.String(length=255), nullable=False),
        sa.Column("task", sa.String(length=64), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("ids", sa.LargeBinary(), nullable=False),
        sa.Column("made_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("queue", "task"),
    )

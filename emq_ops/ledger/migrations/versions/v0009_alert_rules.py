"""How alert rules stand, and which are silent."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "alert_states",
        sa.Column("rule", sa.String(255), primary_key=True),
        sa.Column("queue", sa.String(255), primary_key=True),
        sa.Column("since_ms", sa.BigInteger(), nullable=False),
        sa.Column("firing_ms", sa.BigInteger()),
        sa.Column("told_ms", sa.BigInteger()),
    )
    op.create_table(
        "alert_silences",
        sa.Column("id", SERIAL, primary_key=True, autoincrement=True),
        sa.Column("rules", sa.String(255), nullable=False),
        sa.Column("queues", sa.String(255), nullable=False),
        sa.Column("since_ms", sa.BigInteger(), nullable=False),
        sa.Column("until_ms", sa.BigInteger(), nullable=False),
        sa.Column("holder", sa.String(255), nullable=False),
        sa.Column("why", sa.Text(), nullable=False, server_default=""),
    )

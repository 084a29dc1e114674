"""When each segment was read back or checked last."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("archive_segments", sa.Column("checked_ms", sa.BigInteger()))

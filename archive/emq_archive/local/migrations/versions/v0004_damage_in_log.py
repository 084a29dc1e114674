"""Whether known damage is of the log alone: it is over once the log is whole again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("archive_streams", sa.Column("damage_in_log", sa.Boolean()))

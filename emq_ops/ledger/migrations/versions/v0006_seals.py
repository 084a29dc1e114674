"""What each kept row is known by, so that a trim need not read the row to compare it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Rows that were kept before have none: they are compared by what they hold.
    op.add_column("death_rows", sa.Column("seal", sa.LargeBinary(), nullable=True))

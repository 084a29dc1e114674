"""Jobs that were erased: nothing of their contents is kept again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from emq_ops.database.statements import BRANDED_ID

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "erased_jobs",
        sa.Column("queue", sa.String(255), primary_key=True),
        sa.Column("job", BRANDED_ID, primary_key=True),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
    )

"""The ground: identity, tokens, contacts, interruptions, runs, deaths, holds, windows, requests, alerts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "alerts",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("queue", sa.String(length=255), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("facts", sa.Text(), server_default="{}", nullable=False),
        sa.Column(
            "run", sa.String(length=14).with_variant(sa.VARCHAR(length=14, collation="C"), "postgresql"), nullable=True
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("alerts_by_time", "alerts", ["at_ms"], unique=False)
    op.create_table(
        "competitors",
        sa.Column("queue", sa.String(length=255), nullable=False),
        sa.Column("kind", sa.String(length=24), nullable=False),
        sa.Column("first_ms", sa.BigInteger(), nullable=False),
        sa.Column("last_ms", sa.BigInteger(), nullable=False),
        sa.Column("times", sa.BigInteger(), nullable=False),
        sa.Column("evidence", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("queue", "kind"),
    )
    op.create_table(
        "contacts",
        sa.Column("queue", sa.String(length=255), nullable=False),
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("replid", sa.String(length=64), nullable=False),
        sa.Column("seen_ms", sa.BigInteger(), nullable=False),
        sa.Column("lost", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("token", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("went_back", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("swept_ms", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("completed", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("failed", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("agreed_dead", sa.BigInteger(), server_default="-1", nullable=False),
        sa.Column("agreed_failed", sa.BigInteger(), server_default="-1", nullable=False),
        sa.PrimaryKeyConstraint("queue"),
    )
    op.create_table(
        "deaths",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("queue", sa.String(length=255), nullable=False),
        sa.Column(
            "job", sa.String(length=14).with_variant(sa.VARCHAR(length=14, collation="C"), "postgresql"), nullable=False
        ),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.Column("stalls", sa.BigInteger(), nullable=False),
        sa.Column("first_seen_ms", sa.BigInteger(), nullable=False),
        sa.Column("cause", sa.String(length=16), nullable=False),
        sa.Column("last_error", sa.LargeBinary(), nullable=True),
        sa.Column(
            "killed_by",
            sa.String(length=14).with_variant(sa.VARCHAR(length=14, collation="C"), "postgresql"),
            nullable=True,
        ),
        sa.Column(
            "found_by",
            sa.String(length=14).with_variant(sa.VARCHAR(length=14, collation="C"), "postgresql"),
            nullable=True,
        ),
        sa.Column("deadline_ms", sa.BigInteger(), nullable=True),
        sa.Column("epoch", sa.String(length=64), nullable=True),
        sa.Column("evidence", sa.String(length=64), nullable=True),
        sa.Column("interruption", SERIAL, nullable=True),
        sa.Column("flow", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("gone_ms", sa.BigInteger(), nullable=True),
        sa.Column("gone_how", sa.String(length=16), nullable=True),
        sa.Column(
            "gone_by",
            sa.String(length=14).with_variant(sa.VARCHAR(length=14, collation="C"), "postgresql"),
            nullable=True,
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(
        "deaths_by_age",
        "deaths",
        ["queue", "first_seen_ms", "job", "attempts", "stalls", "flow"],
        unique=False,
        sqlite_where=sa.text("gone_ms IS NULL"),
        postgresql_where=sa.text("gone_ms IS NULL"),
    )
    op.create_index("deaths_by_job", "deaths", ["job"], unique=False)
    op.create_index(
        "deaths_open",
        "deaths",
        ["queue", "job"],
        unique=True,
        sqlite_where=sa.text("gone_ms IS NULL"),
        postgresql_where=sa.text("gone_ms IS NULL"),
    )
    op.create_table(
        "fencing_tokens",
        sa.Column("queue", sa.String(length=255), nullable=False),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("queue"),
    )
    op.create_table(
        "holds",
        sa.Column("queue", sa.String(length=255), nullable=False),
        sa.Column("since_ms", sa.BigInteger(), nullable=False),
        sa.Column("until_ms", sa.BigInteger(), nullable=False),
        sa.Column("holder", sa.String(length=255), nullable=False),
        sa.Column("why", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("queue"),
    )
    op.create_table(
        "interruptions",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("queue", sa.String(length=255), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("run_before", sa.String(length=64), nullable=True),
        sa.Column("run_after", sa.String(length=64), nullable=False),
        sa.Column("started_ms", sa.BigInteger(), nullable=True),
        sa.Column("ended_ms", sa.BigInteger(), nullable=False),
        sa.Column("seen_ms", sa.BigInteger(), nullable=False),
        sa.Column("census_ms", sa.BigInteger(), nullable=True),
        sa.Column("horizon_ms", sa.BigInteger(), nullable=False),
        sa.Column("went_back", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("evidence", sa.Text(), server_default="", nullable=False),
        sa.Column("in_flight", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("recovered", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("exempted", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("died", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("vanished", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("interruptions_by_queue", "interruptions", ["queue", "ended_ms"], unique=False)
    op.create_table(
        "ledger_identity",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "maintenance_windows",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("queues", sa.String(length=255), nullable=False),
        sa.Column("start_ms", sa.BigInteger(), nullable=False),
        sa.Column("end_ms", sa.BigInteger(), nullable=False),
        sa.Column("holder", sa.String(length=255), nullable=False),
        sa.Column("why", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "run_requests",
        sa.Column(
            "id", sa.String(length=14).with_variant(sa.VARCHAR(length=14, collation="C"), "postgresql"), nullable=False
        ),
        sa.Column("kind", sa.String(length=24), nullable=False),
        sa.Column("queue", sa.String(length=255), nullable=False),
        sa.Column("options", sa.Text(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("holder", sa.String(length=255), nullable=False),
        sa.Column("asked_ms", sa.BigInteger(), nullable=False),
        sa.Column("taken_by", sa.String(length=255), nullable=True),
        sa.Column("done_ms", sa.BigInteger(), nullable=True),
        sa.Column("report", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("requests_by_status", "run_requests", ["status", "queue"], unique=False)
    op.create_table(
        "runs",
        sa.Column(
            "id", sa.String(length=14).with_variant(sa.VARCHAR(length=14, collation="C"), "postgresql"), nullable=False
        ),
        sa.Column("kind", sa.String(length=24), nullable=False),
        sa.Column("queue", sa.String(length=255), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("started_ms", sa.BigInteger(), nullable=False),
        sa.Column("ended_ms", sa.BigInteger(), nullable=True),
        sa.Column("trigger", sa.String(length=24), nullable=False),
        sa.Column("holder", sa.String(length=255), nullable=False),
        sa.Column("token", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("slices", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("policy", sa.Text(), server_default="{}", nullable=False),
        sa.Column("counts", sa.Text(), server_default="{}", nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("runs_by_queue", "runs", ["queue", "id"], unique=False)
    op.create_index("runs_by_status", "runs", ["status", "ended_ms"], unique=False)
    op.create_table(
        "trim_listings",
        sa.Column("queue", sa.String(length=255), nullable=False),
        sa.Column(
            "run", sa.String(length=14).with_variant(sa.VARCHAR(length=14, collation="C"), "postgresql"), nullable=False
        ),
        sa.Column("by_mint", sa.Boolean(), nullable=False),
        sa.Column("until_ms", sa.BigInteger(), nullable=False),
        sa.Column(
            "until_job",
            sa.String(length=14).with_variant(sa.VARCHAR(length=14, collation="C"), "postgresql"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("queue"),
    )
    op.create_table(
        "watches",
        sa.Column("queue", sa.String(length=255), nullable=False),
        sa.Column(
            "job", sa.String(length=14).with_variant(sa.VARCHAR(length=14, collation="C"), "postgresql"), nullable=False
        ),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("deadline_ms", sa.BigInteger(), nullable=False),
        sa.Column("stalls", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("queue", "job"),
    )
    op.create_table(
        "census",
        sa.Column("interruption", SERIAL, nullable=False),
        sa.Column(
            "job", sa.String(length=14).with_variant(sa.VARCHAR(length=14, collation="C"), "postgresql"), nullable=False
        ),
        sa.Column("token", sa.BigInteger(), nullable=True),
        sa.Column("deadline_ms", sa.BigInteger(), nullable=False),
        sa.Column("outcome", sa.String(length=16), nullable=True),
        sa.ForeignKeyConstraint(["interruption"], ["interruptions.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("interruption", "job"),
    )
    op.create_table(
        "death_rows",
        sa.Column("death", SERIAL, autoincrement=False, nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["death"], ["deaths.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("death"),
    )
    op.create_table(
        "vanished",
        sa.Column("interruption", SERIAL, nullable=False),
        sa.Column(
            "job", sa.String(length=14).with_variant(sa.VARCHAR(length=14, collation="C"), "postgresql"), nullable=False
        ),
        sa.Column("was", sa.String(length=16), nullable=False),
        sa.ForeignKeyConstraint(["interruption"], ["interruptions.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("interruption", "job"),
    )

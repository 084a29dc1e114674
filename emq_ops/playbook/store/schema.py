"""The tables of playbook runs."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, String, Table, Text

from emq_ops.ledger.schema import metadata

play_runs = Table(
    "play_runs",
    metadata,
    Column("run", String(14), ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("playbook", Text, nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("options", Text, nullable=False),
    Column("queues", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("claim", BigInteger, nullable=False),
    Column("beat_ms", BigInteger, nullable=False),
)

play_steps = Table(
    "play_steps",
    metadata,
    Column("run", String(14), ForeignKey("play_runs.run", ondelete="CASCADE"), primary_key=True),
    Column("task", String(600), primary_key=True),
    Column("queue", String(255), primary_key=True),
    Column("item", BigInteger, primary_key=True),
    Column("attempt", BigInteger, nullable=False),
    Column("plan", Text),
    Column("outcome", Text),
)

TEXTS = ((play_steps, ("plan", "outcome")),)
"""Columns that may quote what was in a job."""

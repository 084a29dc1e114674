"""Tables of deploying: revisions, the state lock, the journal of applies, and what bounds the first pass after one."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Index, LargeBinary, String, Table, Text

from emq_ops.database.statements import SERIAL
from emq_ops.ledger.schema import metadata

revisions = Table(
    "revisions",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("made_ms", BigInteger, nullable=False),
    Column("kind", String(16), nullable=False),  # apply, rollback, destroy, import
    Column("who", String(255), nullable=False),  # user@host:pid
    Column("files", Text, nullable=False, server_default="[]"),  # [{path, sha256}], lowest first
    Column("sha256", String(64), nullable=False),  # of the document
    Column("summary", Text, nullable=False, server_default="{}"),  # JSON: how many of each sign
    Column("document", LargeBinary, nullable=False),  # zlib of its JSON
    Column("plan", LargeBinary, nullable=False),  # zlib of the plan that led here, as JSON
    Column("why", Text, nullable=False, server_default=""),
)

state_lock = Table(
    "state_lock",
    metadata,
    Column("name", String(16), primary_key=True),
    Column("token", BigInteger, nullable=False),
    Column("what", String(64), nullable=False),
    Column("role", String(16), nullable=False),
    Column("host", String(255), nullable=False),
    Column("machine", String(64), nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("start", String(64), nullable=False),
    Column("since_ms", BigInteger, nullable=False),
    Column("until_ms", BigInteger, nullable=False),  # 0: nobody holds it
)


applies = Table(
    "applies",
    metadata,
    Column("id", SERIAL, primary_key=True, autoincrement=True),
    Column("base", BigInteger),
    Column("status", String(16), nullable=False),  # running, done, failed, repaired
    Column("holder", String(255), nullable=False),
    Column("started_ms", BigInteger, nullable=False),
    Column("ended_ms", BigInteger),
    Column("steps", BigInteger, nullable=False),
    Column("revision", BigInteger),
    Column("error", Text),
    Index("applies_by_status", "status"),
)

apply_steps = Table(
    "apply_steps",
    metadata,
    Column("apply", SERIAL, ForeignKey("applies.id", ondelete="CASCADE"), primary_key=True),
    Column("step", BigInteger, primary_key=True),
    Column("queue", String(255), nullable=False),
    Column("setting", Text, nullable=False),
    Column("status", String(16), nullable=False),  # begun, done
    Column("before", Text, nullable=False),  # JSON
    Column("after", Text, nullable=False),  # JSON
    Column("at_ms", BigInteger, nullable=False),
)

bounds = Table(
    "bounds",
    metadata,
    # The ids that the first pass after an apply may remove: fewer, never others.
    Column("queue", String(255), primary_key=True),
    Column("task", String(64), primary_key=True),
    Column("revision", BigInteger, nullable=False),
    Column("count", BigInteger, nullable=False),
    Column("ids", LargeBinary, nullable=False),  # zlib of the ids, a line each
    Column("made_ms", BigInteger, nullable=False),
)

"""The tables. Times are unix ms; those of jobs, leases and interruptions are by the server's clock, those of runs and
requests by the host's. A job that dies again has a new row in `deaths`; the open one has `gone_ms` null.

Another package that adds tables (revisions, journal ...) puts them on `metadata` and adds its own migration.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    text,
)

from emq_ops.database.statements import BRANDED_ID, SERIAL

metadata = MetaData()

identity = Table(
    "ledger_identity",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("value", Text, nullable=False),
)

lives = Table(
    "state_lives",
    metadata,
    # Of a SQLite file: a row wherever it was opened to lead, see `ownership`.
    Column("life", String(32), primary_key=True),
    Column("count", BigInteger, nullable=False),
    Column("place", String(128), nullable=False),
    Column("since_ms", BigInteger, nullable=False),
)

tokens = Table(
    "fencing_tokens",
    metadata,
    Column("queue", String(255), primary_key=True),
    Column("token", BigInteger, nullable=False),
)

contacts = Table(
    "contacts",
    metadata,
    # What was last seen of the node that owns the queue's slot.
    Column("queue", String(255), primary_key=True),
    Column("run_id", String(64), nullable=False),
    Column("replid", String(64), nullable=False),
    Column("seen_ms", BigInteger, nullable=False),
    Column("lost", Boolean, nullable=False, server_default=text("false")),  # it did not answer since
    Column("token", BigInteger, nullable=False, server_default="0"),
    Column("went_back", Boolean, nullable=False, server_default=text("false")),  # it had a lower one when we took it
    # When a sweep last found nothing more to do.
    Column("swept_ms", BigInteger, nullable=False, server_default="0"),
    Column("completed", BigInteger, nullable=False, server_default="0"),
    Column("failed", BigInteger, nullable=False, server_default="0"),
    # The dead set when the ledger last agreed with it: its size and the counter of failures; -1 never.
    Column("agreed_dead", BigInteger, nullable=False, server_default="-1"),
    Column("agreed_failed", BigInteger, nullable=False, server_default="-1"),
)

interruptions = Table(
    "interruptions",
    metadata,
    Column("id", SERIAL, primary_key=True, autoincrement=True),
    Column("queue", String(255), nullable=False),
    Column("kind", String(16), nullable=False),  # restart, failover, outage, rewind
    Column("run_before", String(64)),
    Column("run_after", String(64), nullable=False),
    Column("started_ms", BigInteger),  # the last contact before it; null where there was none
    Column("ended_ms", BigInteger, nullable=False),
    Column("seen_ms", BigInteger, nullable=False),
    Column("census_ms", BigInteger),  # null: nobody made one in time
    # When the last lease that may be of the earlier life lapses.
    Column("horizon_ms", BigInteger, nullable=False),
    Column("went_back", Boolean, nullable=False, server_default=text("false")),
    Column("evidence", Text, nullable=False, server_default=""),
    Column("in_flight", BigInteger, nullable=False, server_default="0"),
    Column("recovered", BigInteger, nullable=False, server_default="0"),
    Column("exempted", BigInteger, nullable=False, server_default="0"),
    Column("died", BigInteger, nullable=False, server_default="0"),
    Column("vanished", BigInteger, nullable=False, server_default="0"),
    Index("interruptions_by_queue", "queue", "ended_ms"),
)

census = Table(
    "census",
    metadata,
    Column("interruption", SERIAL, ForeignKey("interruptions.id", ondelete="CASCADE"), primary_key=True),
    Column("job", BRANDED_ID, primary_key=True),
    Column("token", BigInteger),
    Column("deadline_ms", BigInteger, nullable=False),
    # How it ended, once a sweep took it: exempted, recovered, died.
    Column("outcome", String(16)),
)

vanished = Table(
    "vanished",
    metadata,
    Column("interruption", SERIAL, ForeignKey("interruptions.id", ondelete="CASCADE"), primary_key=True),
    Column("job", BRANDED_ID, primary_key=True),
    Column("was", String(16), nullable=False),  # dead, active
)

runs = Table(
    "runs",
    metadata,
    Column("id", BRANDED_ID, primary_key=True),  # RUN..., so byte order is order of starting
    Column("kind", String(24), nullable=False),
    Column("queue", String(255), nullable=False),
    Column("status", String(16), nullable=False),  # running, done, failed, stopped, interrupted, idle
    Column("started_ms", BigInteger, nullable=False),
    Column("ended_ms", BigInteger),
    Column("trigger", String(24), nullable=False),  # command, daemon, playbook, request ...
    Column("holder", String(255), nullable=False),  # user@host:pid
    Column("token", BigInteger, nullable=False, server_default="0"),
    Column("slices", BigInteger, nullable=False, server_default="0"),  # how many are recorded
    Column("policy", Text, nullable=False, server_default="{}"),
    Column("counts", Text, nullable=False, server_default="{}"),
    Column("error", Text),
    Index("runs_by_queue", "queue", "id"),
    Index("runs_by_status", "status", "ended_ms"),
)

deaths = Table(
    "deaths",
    metadata,
    Column("id", SERIAL, primary_key=True, autoincrement=True),
    Column("queue", String(255), nullable=False),
    Column("job", BRANDED_ID, nullable=False),
    Column("attempts", BigInteger, nullable=False),  # -1: the row says none
    Column("stalls", BigInteger, nullable=False),
    Column("first_seen_ms", BigInteger, nullable=False),
    Column("cause", String(16), nullable=False),  # stalled, error, flow, unknown
    Column("last_error", LargeBinary),
    # The pass that killed it (null: somebody else did), and the one that found it dead.
    Column("killed_by", BRANDED_ID),
    Column("found_by", BRANDED_ID),
    Column("deadline_ms", BigInteger),
    Column("epoch", String(64)),
    Column("evidence", String(64)),
    Column("interruption", SERIAL),
    Column("flow", Boolean, nullable=False, server_default=text("false")),  # it has books of a flow parent
    Column("gone_ms", BigInteger),
    Column("gone_how", String(16)),  # trimmed, revived, removed, vanished
    Column("gone_by", BRANDED_ID),
)
# These two are of open deaths alone (WHERE gone_ms IS NULL), which the migrations say: to say it here would load both
# dialects of SQLAlchemy.
Index(
    "deaths_open",
    deaths.c.queue,
    deaths.c.job,
    unique=True,
)
Index(
    "deaths_by_age",
    deaths.c.queue,
    deaths.c.first_seen_ms,
    deaths.c.job,
    deaths.c.attempts,  # with these three a trim reads its victims from the index alone
    deaths.c.stalls,
    deaths.c.flow,
)
Index("deaths_by_job", deaths.c.job)
snapshots = Table(
    "death_rows",
    metadata,
    # Apart from `deaths`, whose rows are looked through and changed by the hundred thousand.
    Column("death", SERIAL, ForeignKey("deaths.id", ondelete="CASCADE"), primary_key=True, autoincrement=False),
    Column("body", LargeBinary, nullable=False),
    Column("seal", LargeBinary),  # what `snapshot.fingerprint` says of it; null: nobody asked
)

listings = Table(
    "trim_listings",
    metadata,
    # Whom a trim is about to remove: every dead job up to this rank.
    Column("queue", String(255), primary_key=True),
    Column("run", BRANDED_ID, nullable=False),
    Column("by_mint", Boolean, nullable=False),
    Column("until_ms", BigInteger, nullable=False),
    Column("until_job", BRANDED_ID, nullable=False),
)

watches = Table(
    "watches",
    metadata,
    # A sample of leases, looked at again by the next pass: who lets them go, if not we?
    Column("queue", String(255), primary_key=True),
    Column("job", BRANDED_ID, primary_key=True),
    Column("token", BigInteger, nullable=False),
    Column("deadline_ms", BigInteger, nullable=False),
    Column("stalls", BigInteger, nullable=False),
)

competitors = Table(
    "competitors",
    metadata,
    Column("queue", String(255), primary_key=True),
    Column("kind", String(24), primary_key=True),  # recoverer, sweeper, archiver
    Column("first_ms", BigInteger, nullable=False),
    Column("last_ms", BigInteger, nullable=False),
    Column("times", BigInteger, nullable=False),
    Column("evidence", Text, nullable=False),
)

holds = Table(
    "holds",
    metadata,
    Column("queue", String(255), primary_key=True),
    Column("since_ms", BigInteger, nullable=False),
    Column("until_ms", BigInteger, nullable=False),
    Column("holder", String(255), nullable=False),
    Column("why", Text, nullable=False, server_default=""),
)

windows = Table(
    "maintenance_windows",
    metadata,
    Column("id", SERIAL, primary_key=True, autoincrement=True),
    Column("queues", String(255), nullable=False),
    Column("start_ms", BigInteger, nullable=False),
    Column("end_ms", BigInteger, nullable=False),
    Column("holder", String(255), nullable=False),
    Column("why", Text, nullable=False, server_default=""),
)

requests = Table(
    "run_requests",
    metadata,
    Column("id", BRANDED_ID, primary_key=True),  # REQ...
    Column("kind", String(24), nullable=False),
    Column("queue", String(255), nullable=False),
    Column("options", Text, nullable=False),
    Column("status", String(16), nullable=False),  # waiting, running, done, failed, withdrawn
    Column("holder", String(255), nullable=False),
    Column("asked_ms", BigInteger, nullable=False),
    Column("taken_by", String(255)),
    Column("done_ms", BigInteger),
    Column("report", Text),
    Column("error", Text),
    Index("requests_by_status", "status", "queue"),
)

alerts = Table(
    "alerts",
    metadata,
    Column("id", SERIAL, primary_key=True, autoincrement=True),
    Column("at_ms", BigInteger, nullable=False),
    Column("queue", String(255), nullable=False),
    Column("kind", String(32), nullable=False),
    Column("text", Text, nullable=False),
    Column("facts", Text, nullable=False, server_default="{}"),
    Column("run", BRANDED_ID),
    Index("alerts_by_time", "at_ms"),
)

"""Tables of the daemon: a mark a task, a row a living daemon, by the host's clock; how alert rules stand, by the
server's. Times are unix ms."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, String, Table, Text

from emq_ops.database.statements import SERIAL
from emq_ops.ledger.schema import metadata

task_marks = Table(
    "task_marks",
    metadata,
    Column("queue", String(255), primary_key=True),
    Column("task", String(255), primary_key=True),  # stalled, dead, stream:<name>
    Column("due_ms", BigInteger, nullable=False),  # the last instant seen to
    Column("next_ms", BigInteger),
    Column("started_ms", BigInteger),
    Column("ended_ms", BigInteger),
    Column("late_ms", BigInteger, nullable=False, server_default="0"),  # of the last run
    Column("runs", BigInteger, nullable=False, server_default="0"),
    Column("missed", BigInteger, nullable=False, server_default="0"),
    Column("skipped", BigInteger, nullable=False, server_default="0"),
    Column("failures", BigInteger, nullable=False, server_default="0"),  # in a row
    Column("error", Text),
    Column("holder", String(255), nullable=False, server_default=""),
)

daemons = Table(
    "daemons",
    metadata,
    Column("holder", String(255), primary_key=True),  # user@host:pid
    Column("started_ms", BigInteger, nullable=False),
    Column("seen_ms", BigInteger, nullable=False),
    Column("revision", BigInteger),
    Column("leads", BigInteger, nullable=False, server_default="0"),
    Column("facts", Text, nullable=False, server_default="{}"),
)

alert_states = Table(
    "alert_states",
    metadata,
    Column("rule", String(255), primary_key=True),
    Column("queue", String(255), primary_key=True),  # *: of the server
    Column("since_ms", BigInteger, nullable=False),
    Column("firing_ms", BigInteger),
    Column("told_ms", BigInteger),
)

alert_silences = Table(
    "alert_silences",
    metadata,
    Column("id", SERIAL, primary_key=True, autoincrement=True),
    Column("rules", String(255), nullable=False),
    Column("queues", String(255), nullable=False),
    Column("since_ms", BigInteger, nullable=False),
    Column("until_ms", BigInteger, nullable=False),
    Column("holder", String(255), nullable=False),
    Column("why", Text, nullable=False, server_default=""),
)

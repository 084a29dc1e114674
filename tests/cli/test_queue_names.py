"""A queue that a command names is one that something knows, or the nearest name is told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from emq_ops.protocol import ids
from emq_ops.protocol.conformance.keyspace import dump_keyspace
from emq_ops.protocol.server import Server
from tests.support.cli import emq
from tests.support.command_lines import tree

WITHOUT_LOOKING = {
    "acl": "a role's rights are written before its queue is made",
    "alert silence": "it is for the hour in which the server may be away, and for queues that are made meanwhile",
    "config show": "it tells what would hold for a queue, whether it exists or not",
}
"""Commands that take any name, and why."""
REQUIRED = {
    "group": "g",
    "file": "config.yaml",
    "handler": "tests.support.handlers:waits",
    "job": "JOB0STBBIRAKHo",
    "jobs": "JOB0STBBIRAKHo",
    "lane": "GRP0SS8QFjgi3i",
    "length": "1h",
    "max_stalled": "2",
    "most": "1",
    "payload": "config.yaml",
    "playbook": "health-check",
    "segment": "queue=orders/x.parquet",
    "sql": "select 1",
    "number": "1",
    "stream": "completions",
    "to": "GRP0SS8QFjgi3j",
    "what": "x",
}
"""What stands for the other arguments that a command can't do without."""
MORE = {
    "archive erase": ["--job", "JOB0STBBIRAKHo"],
    "archive rehydrate": ["--job", "JOB0STBBIRAKHo"],
    "job delay": ["--in", "5m"],
    "job move": ["--where", "true", "--to-lane", "GRP0SS8QFjgi3i"],
    "job remove": ["--where", "true"],
    "hold": ["--for", "1h"],
    "maintenance start": ["--for", "1h"],
    "play": ["health-check"],
    "stream append": ["a=b"],
    "worker enqueue": ["x"],
    "worker run": ["--until-idle"],
    "worker stream": ["--until-idle"],
}


def naming_a_queue() -> list[tuple[str, list[str]]]:
    """Every command that can be given a queue, as the words that give it one that is not there."""
    found = []
    for words, command in tree().items():
        if getattr(command, "commands", None) or words in WITHOUT_LOOKING:
            continue
        queues = [p for p in command.params if p.name in ("queue", "queues")]
        if not queues:
            continue
        argv = words.split()
        for param in command.params:
            if param in queues:
                argv += ["ordres"] if param.param_type_name == "argument" else [param.opts[0], "ordres"]
            elif param.required:
                value = REQUIRED[param.name]
                argv += [value] if param.param_type_name == "argument" else [param.opts[0], value]
        found.append((words, argv + MORE.get(words, [])))
    return found


def test_a_queue_that_nothing_names_is_an_error_with_the_nearest_name(site: Server) -> None:
    before = dump_keyspace(site)
    wanted = naming_a_queue()
    assert len(wanted) > 30
    wrong = {}
    for words, argv in wanted:
        ran = emq(*argv)
        told = "'ordres'" in ran.err and "did you mean 'orders'?" in ran.err
        state = Path("state.db").exists() and emq("runs", "ls", "--output", "json").json
        if (ran.code, ran.out, told, dump_keyspace(site) == before, state or []) != (4, "", True, True, []):
            wrong[words] = ran
    assert wrong == {}


def test_every_way_to_name_a_queue(site: Server) -> None:
    """The YAML, a key of the server, a revision, a hold, the archive's two sides; and --new for a job of another."""
    for key in ("emq:{lane}:g:GRP0SS8QFjgi3i:pending", "emq:{late}:schedule"):
        site.write("ZADD", key, 0, ids.mint())
    site.write("XADD", "emq:{kept}:stream:completions", "*", "a", "b")
    for queue in ("orders", "lane", "late", "kept"):
        assert emq("runs", "ls", queue).code == 0, queue
    assert emq("archive", "fold", "kept").code == 0
    assert emq("hold", "late", "--for", "1h").code == 0
    site.write("FLUSHALL")
    for queue in ("kept", "late"):
        assert emq("doctor", queue, "--only", "ghost").code == 0, queue
        Path("p.yaml").write_text(f"- {{name: p, queues: {queue}, tasks: [{{name: look, health: {{}}}}]}}\n")
        assert emq("play", "p.yaml").code == 0, queue
    assert emq("runs", "ls", "lane").code == 4
    Path("state.db").unlink()
    Path("archive.db").unlink()
    assert emq("archive", "verify", "kept").code == 0
    assert emq("runs", "ls", "late").code == 4
    assert "fresh is a new queue" in emq("worker", "enqueue", "fresh", "x").err
    assert emq("worker", "enqueue", "fresh", "x").err == ""
    assert emq("worker", "enqueue", "frech", "x").code == 4
    assert emq("worker", "enqueue", "frech", "x", "--new").code == 0


@pytest.mark.parametrize(
    "argv",
    [
        *(("hold", "ordres", "--for", "1m"), ("sweep", "ordres"), ("trim", "ordres", "--yes", "--keep", "1")),
        *(("archive", "status", "ordres"), ("archive", "read", "ordres"), ("archive", "fold", "ordres")),
        ("archive", "query", "ordres", "completions", "select 1"),
        ("worker", "enqueue", "ordres", "x"),
    ],
    ids=" ".join,
)
def test_a_mistyped_queue_is_told(site: Server, argv: tuple[str, ...]) -> None:
    ran = emq(*argv)
    assert (ran.code, ran.out) == (4, "")
    assert ran.err.startswith("emq-ops: no such queue 'ordres' (did you mean 'orders'?")
    assert ran.err.count("\n") == 1
    right = emq(*["orders" if word == "ordres" else word for word in argv])
    assert "no such queue" not in right.err


def test_config_show_of_a_queue_that_no_entry_takes(site: Server) -> None:
    ran = emq("config", "show", "ordres")
    assert ran.code == 0
    assert "nothing runs on it" in ran.err
    assert "(did you mean 'orders'?)" in ran.err
    right = emq("config", "show", "orders")
    assert right.err == ""
    # What is shown can be written into the file.
    assert re.search(r"^protect +false ", right.out, re.MULTILINE)


def test_import_names_the_queues_there_are(site: Server) -> None:
    ran = emq("import", "ordres")
    assert (ran.code, ran.err) == (4, "emq-ops: 'ordres' takes no queue of the server (did you mean 'orders'?)\n")

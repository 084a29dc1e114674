"""What holds for every command alike: help, words, names, and what the messages send the reader to."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from emq_ops.cli.root import root_group
from emq_ops.cli.table import INSTANTS
from emq_ops.ledger.ledger import open_ledger
from emq_ops.ledger.runs import IdleBook
from emq_ops.protocol import ids
from emq_ops.protocol.conformance.keyspace import dump_keyspace
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions.enqueue import enqueue
from tests.support.cli import emq
from tests.support.valkey import Valkey

ROOT = Path(__file__).parents[1]
CONFIG = """
server: {{url: "{url}"}}
state: {{url: "sqlite:///state.db"}}
archive: {{local: "sqlite:///archive.db", remote: {{url: "file:bucket"}}}}
queues:
  orders:
    stalled: {{every: 1h}}
    dead: {{every: "0 3 * * * Europe/Berlin", keep: 10}}
"""


@pytest.fixture
def site(valkey: Valkey, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    """A folder with a config, and its server with one waiting job."""
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text(CONFIG.format(url=valkey.url))
    enqueue(Queue(server, "orders"), ids.mint(), b"x")
    return server


def tree() -> dict[str, Any]:
    """Every command by the words that call it."""
    found: dict[str, Any] = {}

    def walk(words: str, command: Any) -> None:
        found[words] = command
        for name, child in (getattr(command, "commands", None) or {}).items():
            walk(f"{words} {name}", child)

    for noun, command in root_group().commands.items():
        walk(noun, command)
    return found


TREE = tree()


@pytest.mark.parametrize("words", [w for w, c in TREE.items() if getattr(c, "commands", None)] + [""])
def test_a_noun_without_its_verb_shows_its_help(words: str) -> None:
    ran = emq(*words.split())
    assert (ran.code, ran.out) == (4, "")
    assert "\\n" not in ran.err
    assert ran.err.splitlines()[0].startswith("Usage: emq-ops")
    assert {"Commands:", "See:"} & set(ran.err.splitlines())


def test_messages_and_pages_name_commands_that_exist() -> None:
    texts = [p for folder in ("emq_ops", "archive") for p in (ROOT / folder).rglob("*.py")]
    texts += [ROOT / "README.md", ROOT / "config.yaml", *(ROOT / "playbooks").glob("*.yaml")]
    named = 0
    for file in texts:
        for quoted in re.findall(r"`+emq-ops ([^`\n]*)`", file.read_text("utf-8")):
            words = [word for word in quoted.split() if re.fullmatch(r"[a-z|-]+", word)]
            if not words or quoted.startswith(("-", "[", "ARGV")):
                continue
            named += 1
            assert words[0] in TREE, f"{file.name}: emq-ops {quoted}"
            if len(words) > 1 and any(w.startswith(f"{words[0]} ") for w in TREE):
                for verb in words[1].split("|"):
                    assert f"{words[0]} {verb}" in TREE, f"{file.name}: emq-ops {quoted}"
    assert named > 30


WITHOUT_LOOKING = {
    "acl": "a role's rights are written before its queue is made",
    "config show": "it tells what would hold for a queue, whether it exists or not",
}
"""Commands that take any name, and why."""
REQUIRED = {
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
    "job move": ["--where", "true", "--to-lane", "GRP0SS8QFjgi3i"],
    "job remove": ["--where", "true"],
    "hold": ["--for", "1h"],
    "maintenance start": ["--for", "1h"],
    "play": ["health-check"],
    "stream append": ["a=b"],
    "worker enqueue": ["x"],
    "worker run": ["--until-idle"],
}


def naming_a_queue() -> list[tuple[str, list[str]]]:
    """Every command that can be given a queue, as the words that give it one that is not there."""
    found = []
    for words, command in TREE.items():
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


@pytest.mark.parametrize(("words", "argv"), naming_a_queue())
def test_a_queue_that_nothing_names_is_an_error_with_the_nearest_name(
    words: str, argv: list[str], site: Server
) -> None:
    before = dump_keyspace(site)
    ran = emq(*argv)
    assert (ran.code, ran.out) == (4, ""), ran
    assert "'ordres'" in ran.err
    assert "did you mean 'orders'?" in ran.err
    assert dump_keyspace(site) == before
    assert not Path("state.db").exists() or emq("runs", "ls", "--output", "json").json == []


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


VALUE = r"[A-Z]+|NAME=VALUE|[a-z]+(\|[a-z]+)+"
"""What help may call the value of an option: a word that says what is meant, or what there is to choose from."""


@pytest.mark.parametrize("words", [w for w, c in TREE.items() if not getattr(c, "commands", None)])
def test_arguments_and_yes_are_written_alike(words: str) -> None:
    for param in TREE[words].params:
        if param.param_type_name == "argument":
            assert re.fullmatch(r"[A-Z:]+", param.metavar), f"{words}: {param.metavar}"
        elif not param.is_flag:
            assert re.fullmatch(VALUE, param.metavar or ""), f"{words}: {param.opts}: {param.metavar}"
        if "--yes" in param.opts:
            assert "-y" in param.opts, words
    assert not re.search(r" <[a-z]", emq(*words.split(), "--help").out)  # a type is not what is meant


def test_tables_show_instants_and_the_other_forms_the_number(site: Server) -> None:
    assert emq("hold", "orders", "--for", "1h").code == 0
    table = emq("hold").out.splitlines()
    assert table[0].split() == ["queue", "since", "until", "holder", "why"]
    assert re.fullmatch(r"orders  (now|\d s ago) +in 60 min  .*", table[1])
    table = emq("hold", "--utc").out.splitlines()
    assert re.search(r" 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ +20\d\d-", table[1])
    [row] = json.loads(emq("hold", "--output", "json").out)
    assert row["until_ms"] - row["since_ms"] == 3_600_000
    assert {"started_ms", "ended_ms", "last_commit_ms"} <= INSTANTS


def test_ps_tells_when_a_cron_runs_first(site: Server) -> None:
    assert emq("apply", "--yes").code == 0
    rows = {row["task"]: row for row in json.loads(emq("ps", "--output", "json").out)}
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT0[12]:00:00Z", rows["dead"]["next"])
    assert rows["stalled"]["next"] == "at once"
    assert {row["overdue_ms"] for row in rows.values()} == {0, None}


INSTANT = r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ"


def test_ps_tells_what_is_held_until_when_and_by_whom(site: Server) -> None:
    assert emq("apply", "--yes").code == 0
    assert not {"held", "maintenance"} & set(emq("ps").out.splitlines()[0].split())
    held = json.loads(emq("hold", "orders", "--for", "1h", "--why", "incident 7", "--output", "json").out)
    window = json.loads(emq("maintenance", "start", "--for", "2h", "ord*", "--output", "json").out)
    rows = json.loads(emq("ps", "--output", "json").out)
    assert {row["task"] for row in rows} >= {"stalled", "dead"}
    for row in rows:
        assert (row["held_until_ms"], row["held_by"], row["held_why"]) == (
            held["until_ms"],
            held["holder"],
            "incident 7",
        )
        assert (row["maintenance_until_ms"], row["maintenance_by"]) == (window["end_ms"], window["holder"])
    ran = emq("ps")
    assert ran.out.splitlines()[0].split()[-2:] == ["held", "maintenance"]
    assert ran.err == "emq-ops: no daemon runs: nothing is done by itself (emq-ops up)\n"
    assert re.search(rf" until {INSTANT} ", ran.out)  # what follows may be folded
    assert "held_until_ms" in emq("ps", "--output", "csv").out.splitlines()[0].split(",")
    assert emq("release", "orders").err == ""
    assert emq("maintenance", "stop").code == 0
    assert "held" not in emq("ps").out
    assert "was not held" in emq("release", "orders").err


def test_a_fault_of_a_flag_names_the_flag_and_not_the_file(site: Server) -> None:
    ran = emq("archive", "verify", "orders", "--remote", "s3://b/p?endpoint=host")
    assert (ran.code, ran.err.startswith("emq-ops: --remote: ")) == (4, True), ran.err


@pytest.mark.parametrize("verb", ["sweep orders", "trim orders --yes --keep 1"])
def test_no_time_at_all_is_bad_input(verb: str, site: Server) -> None:
    ran = emq(*verb.split(), "--timeout", "0s")
    assert (ran.code, ran.out, ran.err.count("\n")) == (4, "", 1)
    assert "--timeout" in ran.err


def test_ps_shows_what_the_state_knows_while_the_server_is_away(site: Server) -> None:
    assert emq("apply", "--yes").code == 0
    known = {row["task"] for row in emq("ps", "--output", "json").json}
    ran = emq("ps", "-c", "config.yaml", "--url", "unix:///nowhere/at/all", "--output", "json")
    assert (ran.code, {row["task"] for row in ran.json}) == (0, known)
    assert "leaders are not known" in ran.err


def test_undo_of_a_lost_states_run_names_the_way_back(site: Server) -> None:
    """The archive has what that run took away, and the run's id says since when."""
    run = ids.mint("RUN")
    ran = emq("undo", run)
    assert ran.code == 4
    assert f"`emq-ops archive rehydrate QUEUE dead --from {ids.parse(run).unix_ms}`" in ran.err


def test_ps_tells_of_holds_that_no_row_can_show(site: Server) -> None:
    """Of a queue that has no task, and before anything was applied."""
    enqueue(Queue(site, "mail"), ids.mint(), b"x")
    assert emq("hold", "mail", "--for", "1h", "--why", "moving").code == 0
    assert emq("maintenance", "start", "--for", "2h", "mail").code == 0
    for applied in (False, True):
        if applied:
            assert emq("apply", "--yes").code == 0
        told = emq("ps").err.splitlines()[1:]  # after that no daemon runs, or nothing was applied
        assert re.fullmatch(rf"emq-ops: mail: held until {INSTANT} by \S+ \(moving\)", told[0])
        assert re.fullmatch(rf"emq-ops: mail: in maintenance until {INSTANT} by \S+", told[1])
        assert len(told) == 2


def test_ps_tells_the_windows_of_the_applied_config(site: Server) -> None:
    config = Path("config.yaml")
    window = "maintenance: [{from: 2020-01-01T00:00:00Z, to: 2999-01-01T00:00:00Z}]\n"
    config.write_text(config.read_text() + window)
    assert emq("apply", "--yes").code == 0
    rows = json.loads(emq("ps", "--output", "json").out)
    assert {(row["maintenance_until_ms"], row["maintenance_by"]) for row in rows} == {(32_472_144_000_000, "config")}
    assert {row["held_until_ms"] for row in rows} == {None}


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


def test_validate_says_that_all_is_well_and_sees_a_bucket_without_its_slashes(site: Server) -> None:
    assert emq("validate").err == "emq-ops: no fault; 1 queue and 0 globs\n"
    text = Path("config.yaml").read_text()
    Path("config.yaml").write_text(text.replace("file:bucket", "s3:/bucket"))
    ran = emq("validate")
    assert ran.code == 4
    assert "expected file:DIR or s3://bucket/prefix" in ran.err
    assert "write s3://bucket" in ran.err


def test_import_names_the_queues_there_are(site: Server) -> None:
    ran = emq("import", "ordres")
    assert (ran.code, ran.err) == (4, "emq-ops: 'ordres' takes no queue of the server (did you mean 'orders'?)\n")


def test_a_selection_without_a_fit_is_told_in_words(site: Server) -> None:
    ran = emq("audit", "dead", "orders", "--error", "HTTP 5*", "--error", "boom", "--requeue")
    assert ran.code == 4
    assert "no dead job fits (errors HTTP 5* or boom)" in ran.err
    assert "a part of it wants stars: '*HTTP 5*'" in ran.err


def test_runs_that_found_nothing_do_not_hide_the_others(site: Server) -> None:
    assert emq("sweep", "orders").code == 0
    with open_ledger("sqlite:///state.db") as ledger:
        book = IdleBook(ledger, "me")
        book.note("stalled")
        book.flush()
    assert [row["kind"] for row in json.loads(emq("runs", "ls", "--output", "json").out)] == ["sweep"]
    for more in (("--idle",), ("--kind", "idle")):
        rows = json.loads(emq("runs", "ls", *more, "--output", "json").out)
        assert rows[0]["kind"] == "idle"


@pytest.mark.parametrize("words", [w for w, c in TREE.items() if not getattr(c, "commands", None)])
def test_the_examples_of_a_command_are_ones_that_it_takes(words: str) -> None:
    """Two of each, read as a command line would be, down to the last option."""
    lines = [line.strip() for line in (TREE[words].help or "").splitlines() if line.startswith("  emq-ops ")]
    assert len(lines) >= 2, words
    for line in lines:
        argv = shlex.split(line.split(" > ")[0])[1:]
        assert f" {words} " in f" {' '.join(argv)} "
        command: Any = root_group()
        context = command.make_context("emq-ops", list(argv))
        rest = argv
        while getattr(command, "commands", None) is not None:
            name, command, rest = command.resolve_command(context, rest)
            context = command.make_context(name, list(rest), parent=context)


def test_a_word_that_is_no_command_is_answered_with_the_nearest() -> None:
    for word, told in (
        ("quue", "did you mean 'queue'?"),
        ("requeue", "`emq-ops dead requeue`"),
        ("xyzzy", "emq-ops --help"),
    ):
        ran = emq(word, "orders")
        assert (ran.code, told in ran.err, ran.err.count("\n")) == (4, True, 1), ran.err
    assert "Did you mean 'ls'?" in emq("queue", "lst").err
    assert "--unhealthy" in emq("queue", "ls", "--unhealty").err
    helped = emq("-h").out
    assert [line for line in helped.splitlines() if line in ("See:", "Act:", "Deploy:", "Archive:", "Investigate:")]
    assert emq("queue", "ls", "-h").out.startswith("Usage: emq-ops queue ls")

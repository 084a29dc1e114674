"""What holds for every command alike: help, words, names, and what the messages send the reader to."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from emq_ops.cli.output import INSTANTS
from emq_ops.cli.root import COMMANDS, LazyGroup
from emq_ops.ledger.ledger import open_ledger
from emq_ops.ledger.runs import IdleBook
from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions.enqueue import enqueue
from tests.audit.cli import emq
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

    group = LazyGroup(name="emq-ops")
    for noun in COMMANDS:
        walk(noun, group.get_command(None, noun))
    return found


TREE = tree()


@pytest.mark.parametrize("words", [w for w, c in TREE.items() if getattr(c, "commands", None)] + [""])
def test_a_noun_without_its_verb_shows_its_help(words: str) -> None:
    ran = emq(*words.split())
    assert (ran.code, ran.out) == (4, "")
    assert "\\n" not in ran.err
    assert ran.err.splitlines()[0].startswith("Usage: emq-ops")
    assert "Commands:" in ran.err.splitlines()


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


@pytest.mark.parametrize("words", [w for w, c in TREE.items() if not getattr(c, "commands", None)])
def test_arguments_and_yes_are_written_alike(words: str) -> None:
    for param in TREE[words].params:
        if param.param_type_name == "argument":
            assert re.fullmatch(r"[A-Z:]+", param.metavar), f"{words}: {param.metavar}"
        if "--yes" in param.opts:
            assert "-y" in param.opts, words


def test_tables_show_instants_and_the_other_forms_the_number(site: Server) -> None:
    assert emq("hold", "orders", "--for", "1h").code == 0
    table = emq("hold").out.splitlines()
    assert table[0].split() == ["queue", "since", "until", "holder", "why"]
    assert re.search(r" 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ +20\d\d-", table[1])
    [row] = json.loads(emq("hold", "--output", "json").out)
    assert row["until_ms"] - row["since_ms"] == 3_600_000
    assert {"started_ms", "ended_ms", "last_commit_ms"} <= INSTANTS


def test_ps_tells_when_a_cron_runs_first_and_what_is_held(site: Server) -> None:
    assert emq("apply", "--yes").code == 0
    rows = {row["task"]: row for row in json.loads(emq("ps", "--output", "json").out)}
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT0[12]:00:00Z", rows["dead"]["next"])
    assert rows["stalled"]["next"] == "at once"
    assert {row["overdue_ms"] for row in rows.values()} == {0, None}
    assert emq("hold", "orders", "--for", "1h", "--why", "incident 7").code == 0
    assert re.fullmatch(r"emq-ops: orders: held by \S+ for 60 more minutes \(incident 7\)\n", emq("ps").err)
    assert emq("release", "orders").err == ""
    assert emq("ps").err == ""
    assert "was not held" in emq("release", "orders").err


@pytest.mark.parametrize(
    "argv",
    [
        *(("hold", "ordres", "--for", "1m"), ("sweep", "ordres"), ("trim", "ordres", "--keep", "1")),
        *(("archive", "status", "ordres"), ("archive", "read", "ordres"), ("archive", "fold", "ordres")),
        ("archive", "query", "ordres", "completions", "select 1"),
    ],
    ids=" ".join,
)
def test_a_mistyped_queue_is_told(site: Server, argv: tuple[str, ...]) -> None:
    ran = emq(*argv)
    assert "emq-ops: ordres: the server has no such queue (did you mean 'orders'?)\n" in ran.err
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
    assert (ran.code, ran.err) == (4, "emq-ops: 'ordres' takes no queue of the server (one of orders)\n")


def test_a_selection_without_a_fit_is_told_in_words(site: Server) -> None:
    ran = emq("audit", "dead", "orders", "--error", "HTTP 5*", "--error", "boom", "--requeue")
    assert ran.code == 4
    assert "no dead job fits (errors HTTP 5* or boom)" in ran.err


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

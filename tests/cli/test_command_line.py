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
from emq_ops.ledger.pending_runs import IdleBook
from emq_ops.protocol import ids
from emq_ops.protocol.server import Server
from tests.support.cli import emq
from tests.support.command_lines import LINES, tree

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("words", sorted({words.rpartition(" ")[0] for words in LINES}))
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
            assert words[0] in tree(), f"{file.name}: emq-ops {quoted}"
            if len(words) > 1 and any(w.startswith(f"{words[0]} ") for w in tree()):
                for verb in words[1].split("|"):
                    assert f"{words[0]} {verb}" in tree(), f"{file.name}: emq-ops {quoted}"
    assert named > 30


VALUE = r"[A-Z]+|NAME=VALUE|[a-z]+(\|[a-z]+)+"
"""What help may call the value of an option: a word that says what is meant, or what there is to choose from."""


@pytest.mark.parametrize("words", sorted(LINES))
def test_arguments_and_yes_are_written_alike(words: str) -> None:
    for param in tree()[words].params:
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


def test_a_fault_of_a_flag_names_the_flag_and_not_the_file(site: Server) -> None:
    ran = emq("archive", "verify", "orders", "--remote", "s3://b/p?endpoint=host")
    assert (ran.code, ran.err.startswith("emq-ops: --remote: ")) == (4, True), ran.err


@pytest.mark.parametrize("verb", ["sweep orders", "trim orders --yes --keep 1"])
def test_no_time_at_all_is_bad_input(verb: str, site: Server) -> None:
    ran = emq(*verb.split(), "--timeout", "0s")
    assert (ran.code, ran.out, ran.err.count("\n")) == (4, "", 1)
    assert "--timeout" in ran.err


def test_undo_of_a_lost_states_run_names_the_way_back(site: Server) -> None:
    """The archive has what that run took away, and the run's id says since when."""
    run = ids.mint("RUN")
    ran = emq("undo", run)
    assert ran.code == 4
    assert f"`emq-ops archive rehydrate QUEUE dead --from {ids.parse(run).unix_ms}`" in ran.err


def test_validate_says_that_all_is_well_and_sees_a_bucket_without_its_slashes(site: Server) -> None:
    assert emq("validate").err == "emq-ops: no fault; 1 queue and 0 globs\n"
    text = Path("config.yaml").read_text()
    Path("config.yaml").write_text(text.replace("file:bucket", "s3:/bucket"))
    ran = emq("validate")
    assert ran.code == 4
    assert "expected file:DIR or s3://bucket/prefix" in ran.err
    assert "write s3://bucket" in ran.err


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


@pytest.mark.parametrize("words", sorted(LINES))
def test_the_examples_of_a_command_are_ones_that_it_takes(words: str) -> None:
    """Two of each, read as a command line would be, down to the last option."""
    lines = [line.strip() for line in (tree()[words].help or "").splitlines() if line.startswith("  emq-ops ")]
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

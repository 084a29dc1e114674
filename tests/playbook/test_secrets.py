"""What a template read from the environment works, and is neither shown nor stored."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from emq_ops.playbook.asks import Asks
from emq_ops.playbook.errors import PlaybookError
from emq_ops.playbook.lookup import make_lookup
from emq_ops.playbook.secrets import Secrets
from emq_ops.syntax.expressions import Compiler
from tests.playbook.bench import Bench

ENV = {"EMQ_PLAY_TOKEN": "s3cr3t-token", "EMQ_PLAY_SHORT": "ab"}
BOOK = """
- queues: orders
  tasks:
    - {name: fact, set_fact: {token: "{{ lookup('env', 'EMQ_PLAY_TOKEN') }}"}}
    - {name: said, debug: "with {{ token }}"}
    - {name: wait, drain: }
    - {name: works, assert: {that: "token == lookup('env', 'EMQ_PLAY_TOKEN') and token | length == 12"}}
    - {name: short, debug: "{{ lookup('env', 'EMQ_PLAY_SHORT') }}"}
"""


def test_a_secret_is_a_reference_outside(bench: Bench, tmp_path: Path) -> None:
    bench.put("orders", {"pending": ["A"]})
    ended = bench.play(BOOK, environ=ENV, asks=None)
    assert ended.status == "done"
    assert bench.message("said") == "with ${EMQ_PLAY_TOKEN}"
    assert bench.message("short") == "ab"
    bench.ledger.close()
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("state.db*"))
    assert b"s3cr3t" not in stored


def test_a_resumed_run_reads_it_again(bench: Bench) -> None:
    bench.put("orders", {"pending": ["A"]})
    ended = bench.play(BOOK, environ=ENV, asks=Asks(confirm=lambda _prediction: False))
    assert ended.status == "declined"
    again = bench.resume(ended.run, environ=ENV)
    assert again.status == "done"
    assert bench.message("said") == "with ${EMQ_PLAY_TOKEN}"


def test_nor_does_an_error_show_it(bench: Bench) -> None:
    bench.put("orders", {"pending": ["A"]})
    text = BOOK.replace("- {name: fact", "- {debug: x, when: \"lookup('env', 'EMQ_PLAY_TOKEN')\"}\n    - {name: fact")
    with pytest.raises(PlaybookError) as caught:
        bench.play(text, environ=ENV)
    assert "is the text '${EMQ_PLAY_TOKEN}'" in str(caught.value)
    late = BOOK.replace("- {name: said", "- {debug: x, when: token}\n    - {name: said")
    ended = bench.play(late, environ=ENV)
    assert ended.status == "bad_input"
    assert "is the text '${EMQ_PLAY_TOKEN}'" in ended.reason


def test_there_and_back() -> None:
    secrets = Secrets({"A": "abcd", "B": "abcdef", "C": None, "D": "x"})
    value = {"abcdef": ["x abcdef abcd", 1, None, ("abcd",)]}
    assert secrets.shown(value) == {"${B}": ["x ${B} ${A}", 1, None, ("${A}",)]}
    assert secrets.resolved(secrets.stored(value)) == value
    assert Secrets({"E": "s3cr3t"}).resolved(secrets.stored("x abcd")) == "x \ue0f0A\ue0f1"


TRANSFORMED = (
    "{{ k | upper }}", "{{ k.upper() }}", "{{ k[0] }}", "{{ k[2:5] }}", "{{ k | first }}", "{{ k | list | join('-') }}",
    "{% for c in k %}{{ c }} {% endfor %}", "{{ k | replace('-', '_') }}", "{{ k | regex_search('t.k.n') }}",
    "{{ [k] | map('upper') | first }}", "{{ k | map('upper') | join }}", "{{ {'a': k} | tojson }}", "{{ k ~ k[0] }}",
    "{{ k + 'x' }}", "{{ k * 2 }}", "{{ k.split('-') }}", "{{ (k ~ '') | title }}", "{{ {'a': k[1:]}['a'] }}",
    "{{ k | truncate(6, true, '') }}", "{{ [k, 'b'] | to_json | from_json }}", "{{ (k, 'b') | min }}",
    "{{ [k[3]] | sort | last }}", "{{ k | reverse }}", "{{ k | default('x') | indent }}", "{{ k | batch(2) | list }}",
    "{{ dict | default({k: k | lower}) | dictsort }}",
)  # fmt: skip


@pytest.mark.parametrize("template", TRANSFORMED)
def test_what_is_made_of_a_secret_is_neither_shown_nor_stored(template: str) -> None:
    text = Secrets({"K": ENV["EMQ_PLAY_TOKEN"]})
    lookup = make_lookup({"K": ENV["EMQ_PLAY_TOKEN"]})
    value = Compiler().template(template).run({"k": lookup("env", "K")})
    for form in (text.shown, text.stored):
        said = json.dumps(form({"msg": value}), ensure_ascii=False).removeprefix('{"msg": ').lower()
        for piece in ("s3c", "cr3", "3t", "tok", "ken", "ek", "n3k"):
            assert piece not in said, said
        bare = re.sub(r"\$\{.*?\}|\ue0f0.*?\ue0f1", "", said)
        assert not set(bare) & set("scr3token"), said


def test_what_was_made_of_a_secret_is_not_brought_back_as_something_else(bench: Bench) -> None:
    bench.put("orders", {"pending": ["A"]})
    made = "set_fact: {made: \"{{ lookup('env', 'EMQ_PLAY_TOKEN') | upper }}\", token: "
    book = BOOK.replace("with {{ token }}", "with {{ made }}").replace("set_fact: {token: ", made)
    book += '    - {name: late, debug: "{{ made }}"}\n'
    ended = bench.play(book, environ=ENV, asks=Asks(confirm=lambda _prediction: False))
    assert bench.message("said") == "with ${EMQ_PLAY_TOKEN}"
    again = bench.resume(ended.run, environ=ENV)
    assert again.status == "bad_input"
    assert "made of ${EMQ_PLAY_TOKEN}, which no run stores" in again.reason

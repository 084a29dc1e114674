"""What a template read from the environment works, and is neither shown nor stored."""

from __future__ import annotations

from pathlib import Path

import pytest

from emq_ops.playbook.asks import Asks
from emq_ops.playbook.errors import PlaybookError
from emq_ops.playbook.secrets import Secrets
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
    assert Secrets({}).shown(value) is value

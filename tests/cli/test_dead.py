"""``emq-ops dead``: a selection over queues is one run, and what it did is taken back by one command."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions.jobs import read_row
from tests.passes.acts.seeding import die
from tests.support.cli import Ran, emq
from tests.support.passing import dead_of
from tests.support.valkey import Valkey


@pytest.fixture
def ops(valkey: Valkey, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """The command line on a server; the state is in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return lambda *argv: emq(*argv, "--url", valkey.url)


def test_those_of_one_error_are_requeued_with_new_attempts_and_taken_back(
    server: Server, ops: Callable[..., Ran]
) -> None:
    queues = [Queue(server, name) for name in ("mail", "orders")]
    dead = {q.name: [die(q, b"HTTP 503") for _ in range(3)] for q in queues}
    other = die(queues[0], b"boom")
    listed = ops("dead", "ls")
    assert "6 died of 'HTTP 503' in 2 queues: mail 3, orders 3" in listed.err
    dry = ops("dead", "requeue", "--error", "HTTP 503", "--dry-run")
    assert "--reset-attempts" in dry.err
    assert "nothing was changed; with --yes 6 would be requeued" in dry.err
    assert not Path(".emq").exists()
    ran = ops("dead", "requeue", "--error", "HTTP 503", "--reset-attempts", "--yes")
    assert ran.code == 0, ran.err
    assert "next error" not in ran.err
    told = re.search(r"6 requeued in 2 queues \(run (RUN\w{11})\)\nto take it back: emq-ops undo \1\n", ran.err)
    assert told is not None, ran.err
    assert (dead_of(queues[0]), dead_of(queues[1])) == ([other], [])
    assert (read_row(queues[1], dead["orders"][0]) or {})[b"attempts"] == b"0"
    back = ops("undo", told[1])
    assert (back.code, "6 of 6 taken back in 2 queues" in back.err) == (0, True)
    assert dead_of(queues[0]) == sorted([*dead["mail"], other])
    assert (read_row(queues[1], dead["orders"][0]) or {})[b"attempts"] == b"1"


def test_a_few_first(server: Server, ops: Callable[..., Ran]) -> None:
    later, sooner = Queue(server, "alpha"), Queue(server, "beta")
    old = [die(sooner) for _ in range(2)]
    new = [die(later) for _ in range(2)]
    rows = ops("dead", "ls", "--limit", "3", "--oldest", "--output", "json").json
    assert [row["job"] for row in rows] == [*old, new[0]]
    ran = ops("dead", "remove", "alpha", "beta", "--limit", "3", "--oldest", "--yes")
    assert ran.code == 0, ran.err
    assert (dead_of(sooner), dead_of(later)) == ([], [new[1]])


@pytest.mark.parametrize(
    ("argv", "what"),
    [
        (("requeue",), "without a queue or a filter"),
        (("requeue", "orders", "--reset-attempts", "--max-attempts", "1"), "at once"),
        (("requeue", "orders", "--oldest"), "--oldest without --limit"),
        (("remove", "orders", "--error", "nothing like it"), "no dead job fits"),
        (("remove", "orders", "--payload", " "), "--payload is empty"),
        (("remove", "ordres", "--yes"), "did you mean 'orders'?"),
    ],
)
def test_bad_input_is_one_line(server: Server, ops: Callable[..., Ran], argv: tuple[str, ...], what: str) -> None:
    die(Queue(server, "orders"))
    ran = ops("dead", *argv)
    assert (ran.code, ran.err.count("\n"), what in ran.err) == (4, 1, True), ran.err

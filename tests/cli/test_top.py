"""`top` in a pseudo-terminal: keys, acts, resize, the server away and back; off a terminal it is one table."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from emq_ops.cli.top_keys import parse_keys
from emq_ops.ledger.ledger import open_ledger
from emq_ops.overview.watch import SHARE, Watch
from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server, connect
from emq_ops.protocol.transitions import enqueue, reads
from tests.support.cli import emq
from tests.support.passing import kill_row
from tests.support.screen import Terminal
from tests.support.valkey import Valkey


def _many(server: Server, count: int) -> None:
    for place in range(count):
        name = f"mail-{place:04}"
        enqueue.enqueue_many(Queue(server, name), [enqueue.NewJob(ids.mint(), b"x") for _ in range(1 + place % 3)])


def test_a_screen_of_a_thousand_queues(tmp_path: Path) -> None:
    state = f"sqlite:///{tmp_path}/state.db"
    open_ledger(state).close()
    with Valkey() as valkey:
        with connect(valkey.url) as server:
            _many(server, 1000)
            kill_row(Queue(server, "mail-0007"), 4)
            terminal = Terminal("--url", valkey.url, "--state", state, "top", "--every", "200ms", folder=tmp_path)
            terminal.until("1,000 queues")
            assert "  4 dead  " in terminal.text
            terminal.type("sssss\x1b[B\x1b[Bkj")  # sorted, moved
            terminal.type("/mail-0007\r")
            terminal.until(lambda text: "only 'mail-0007'" in text and "mail-0008" not in text)
            terminal.type("p")
            terminal.until("Pause mail-0007?")
            terminal.type("n")
            terminal.until("nothing was changed")
            assert not reads.is_paused(Queue(server, "mail-0007"))
            terminal.type("py")
            terminal.until("back: emq-ops queue resume mail-0007")
            assert reads.is_paused(Queue(server, "mail-0007"))
            terminal.type("\r")
            terminal.until(lambda text: "emq-ops queue resume mail-0007" in text and "state  paused" in text)
            terminal.type("\x1b")
            terminal.type("r")
            terminal.until("Requeue 4 dead of mail-0007?")
            terminal.type("y")
            terminal.until("4 wait again (run ")
            assert reads.counts(Queue(server, "mail-0007")).dead == 0
        terminal.resize(40, 8)
        terminal.until("too small")
        terminal.resize(90, 24)
        terminal.until("mail-0007")
        terminal.type("?")
        terminal.until("pause or resume the queue")
        terminal.type("\x1b")
        valkey.kill()
        terminal.until("all this is as old")
        assert "mail-0007" in terminal.text
        valkey.restart()
        terminal.until("back after")
        terminal.type("q")
        before = terminal.settings
        code, left = terminal.close()
        assert (code, left) == (0, before)


def test_no_more_of_the_server_than_its_share(server: Server) -> None:
    _many(server, 300)
    watch = Watch(server, None)
    watch.look()
    asked = 0.0
    began = time.monotonic()
    while time.monotonic() - began < 3:
        watch.look(["mail-0001"], 0.5)
        asked += watch.wait_s * SHARE
        time.sleep(max(0.5, watch.wait_s))
    assert asked / (time.monotonic() - began) <= 2 * SHARE
    assert len(watch.known) == 300
    assert watch.known["mail-0001"].rates.completed == 0


def test_off_a_terminal_one_table(server: Server, valkey: Valkey, tmp_path: Path) -> None:
    _many(server, 2)
    ran = emq("--url", valkey.url, "--state", f"sqlite:///{tmp_path}/s.db", "top")
    assert ran.code == 0
    assert [line.split()[0] for line in ran.out.splitlines()[1:]] == ["mail-0000", "mail-0001"]


@pytest.mark.parametrize(
    ("struck", "keys"),
    [
        (b"qj", ["q", "j"]),
        (b"\x1b[A\x1b[6~\r", ["up", "pgdn", "enter"]),
        (b"\x1b", ["escape"]),
        (b"\x1b[1;5Cx", ["x"]),
        ("é!".encode(), ["é", "!"]),
        (b"\xff", ["\ufffd"]),
    ],
)
def test_keys(struck: bytes, keys: list[str]) -> None:
    assert list(parse_keys(struck)) == keys

"""A first config: what is found is told, few questions, and a file that validates, plans and applies."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from emq_ops.protocol import ids
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import enqueue
from tests.support.cli import emq
from tests.support.passing import kill_row
from tests.support.terminal import at_terminal
from tests.support.valkey import Valkey


@pytest.fixture
def here(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, and a server with two queues; one has a stream that something trims."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EMQ_URL", raising=False)
    orders = Queue(server, "orders")
    for _ in range(3):
        enqueue.enqueue(orders, ids.mint(), b"x")
    kill_row(Queue(server, "odd*name"), 2)
    for number in range(5):
        server.write("XADD", orders.keys.stream("completions"), f"{number + 1}-0", "id", "x")
    server.write("XTRIM", orders.keys.stream("completions"), "MAXLEN", 2)
    return tmp_path


def test_what_is_found_becomes_a_config(here: Path, valkey: Valkey) -> None:
    ran = emq("--url", valkey.url, "init", "--non-interactive")
    assert ran.code == 0
    assert "2 queues" in ran.err
    assert (
        "orders: 3 waiting, 0 active, 0 scheduled, 0 dead, completions: 2 records of 5: something trims it" in ran.err
    )
    assert stat.S_IMODE((here / "config.yaml").stat().st_mode) == 0o600
    assert emq("validate").code == 0
    plan = emq("plan")
    assert plan.code == 2
    assert "+ orders/streams/completions" in plan.out
    assert "odd\\\\*name" in (here / "config.yaml").read_text()
    assert emq("apply", "--yes").code == 0
    again = emq("--url", valkey.url, "init", "--non-interactive")
    assert (again.code, "already" in again.err) == (4, True)


def test_six_questions_at_most(here: Path, valkey: Valkey) -> None:
    answers = [valkey.url, "", "file:bucket", "3", "50", "1000"]
    ran = at_terminal("init", "ours.yaml", typed="\n".join(answers) + "\n")
    assert ran.code == 0, ran.err
    text = (here / "ours.yaml").read_text()
    for said in (valkey.url, "file:bucket", "max_stalled: 3", "keep: 50", "keep: 1000"):
        assert said in text
    assert emq("-c", "ours.yaml", "plan").code == 2


def test_without_an_archive_nothing_is_trimmed(here: Path, valkey: Valkey) -> None:
    ran = at_terminal("--url", valkey.url, "init", typed="\nnone\n1\n")
    assert ran.code == 0, ran.err
    assert emq("apply", "--yes").code == 0  # it needs no --allow-loss


@pytest.mark.usefixtures("here")
def test_no_secret_is_written(valkey: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = at_terminal("init", typed="redis://ops:hunter22@10.0.0.5\n")
    assert (refused.code, "redis://ops:${NAME}@10.0.0.5" in refused.err) == (4, True)
    assert not Path("config.yaml").exists()
    monkeypatch.setenv("EMQ_URL", valkey.url)
    assert emq("init", "--non-interactive").code == 0
    assert "${EMQ_URL}" in Path("config.yaml").read_text()
    assert valkey.url not in Path("config.yaml").read_text()
    assert emq("plan").code == 2


def test_bounds(here: Path, valkey: Valkey) -> None:
    ran = emq("--url", valkey.url, "init", "--non-interactive", "--keys", "1")
    assert (ran.code, "a part of the server's" in ran.err) == (0, True)
    nobody = emq("--url", valkey.url, "init", "other.yaml")
    assert (nobody.code, "nobody to ask" in nobody.err) == (4, True)
    assert emq("init", "other.yaml", "--non-interactive").code == 4
    away = emq("--url", "redis://127.0.0.1:1", "init", "other.yaml", "--non-interactive")
    assert (away.code, (here / "other.yaml").exists()) == (3, False)

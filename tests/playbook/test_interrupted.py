"""``emq-ops play`` that is interrupted, meets another, or loses its server on the way."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.playbook.bench import Bench, job
from tests.playbook.place import run
from tests.support.passing import until
from tests.support.valkey import Valkey


def _start(place: Bench, book: str) -> subprocess.Popen[str]:
    """The command as a process of its own; the folder above the tests on its path."""
    (place.folder / "slow.yaml").write_text(book)
    return subprocess.Popen(
        [sys.executable, "-m", "emq_ops.cli.main", "play", "slow.yaml"],
        cwd=place.folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


SLOW = """
- queues: orders
  tasks:
    - {pause: , register: p}
    - wait_for: {pending: 0, timeout: 1h}
    - {name: told, debug: "{{ p.was_paused }}"}
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_in_the_middle(number: int, place: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    process = _start(place, SLOW)
    assert process.stdout is not None
    seen = ""
    while "2 pending" not in seen:
        seen += process.stdout.readline()
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "interrupted; go on with: emq-ops play --resume RUN" in err
    run_id = err.rsplit(" ", 1)[1].strip()
    assert place.seen("orders")["paused"]
    for name in "AB":
        place.server.write("ZREM", "emq:{orders}:pending", job(name))
    assert run("--resume", run_id, "--output", "json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["recap"]["orders"] == {
        "ok": 3, "changed": 1, "skipped": 0, "failed": 0, "rescued": 0, "unknown": 0,
    }  # fmt: skip
    assert document["plays"][0]["tasks"][2]["queues"]["orders"]["message"] == "false"


def test_a_live_run_is_not_taken_over(place: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    process = _start(place, SLOW)
    assert process.stdout is not None
    run_id = process.stdout.readline().split(" ")[0]
    try:
        assert run("--resume", run_id) == 4
        assert re.search(rf"is still being run by \S+@\S+:{process.pid} ", capsys.readouterr().err)
    finally:
        process.kill()
        process.communicate()
    until(lambda: place.seen("orders"), "the server answers")


def test_a_server_lost_in_the_middle(
    place: Bench, valkey: Valkey, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Valkey(appendonly="yes", appendfsync="always") as own:
        text = (tmp_path / "config.yaml").read_text().replace(str(valkey.socket), str(own.socket))
        (tmp_path / "config.yaml").write_text(text)
        with own.client() as admin:
            admin.zadd("emq:{orders}:pending", {job("A"): 0})
        process = _start(place, SLOW)
        assert process.stdout is not None
        seen = ""
        while "1 pending" not in seen:
            seen += process.stdout.readline()
        own.kill()
        _, err = process.communicate(timeout=60)
        assert process.returncode == 3
        assert "go on with: emq-ops play --resume RUN" in err
        own.start()
        with own.client() as admin:
            admin.zrem("emq:{orders}:pending", job("A"))
        assert run("--resume", err.rsplit(" ", 1)[1].strip()) == 0


def test_batches_that_were_not_begun_are_named(place: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    (place.folder / "serial.yaml").write_text(
        "- {queues: [mail, orders, parcels], serial: 1, tasks: [{fail: {msg: no, }, when: queue == 'mail'}]}\n"
    )
    place.put("parcels", {"pending": ["E"]})
    assert run("serial.yaml") == 2
    captured = capsys.readouterr()
    assert "1 of 3 queues failed, 2 not begun; with the cause mended" in captured.err
    recap = captured.out.split("PLAY RECAP")[1].splitlines()
    assert [line.split(" : ")[1].split("=")[0] for line in recap[1:4]] == ["ok", "not begun", "not begun"]
    assert [line.split()[0] for line in recap[1:4]] == ["mail", "orders", "parcels"]
    assert run("serial.yaml", "--output", "json") == 2
    assert json.loads(capsys.readouterr().out)["not_begun"] == ["orders", "parcels"]

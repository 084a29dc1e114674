"""``emq-ops worker`` as a real command."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from emq_ops.cli.main import main
from emq_ops.protocol import ids
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.transitions import claims, reads, recover, streams
from emq_ops.worker import load_handler
from tests.support.consuming import eventually, put_all, records
from tests.support.valkey import Valkey

TOOL = Path(sys.executable).with_name("emq-ops")
HANDLERS = """
import time
def good(job):
    return {"seen": job.payload.decode()}
def mixed(job):
    if job.payload == b"bad":
        raise ValueError("no \\x1b[31mgood")
def many(jobs):
    return {job.id: "ok" if job.payload == b"one" else {"dead": "no"} for job in jobs}
def book(entry):
    if entry.fields[b"n"] == b"1":
        raise ValueError("no")
def hangs(job):
    time.sleep(600)
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module of handlers, as the working folder."""
    (tmp_path / "shop_jobs.py").write_text(HANDLERS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    sys.modules.pop("shop_jobs", None)
    return tmp_path


def test_a_queue_is_worked_until_it_is_idle(
    valkey: Valkey, q: Queue, shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put_all(q, b"one", b"two")
    line = ["--url", valkey.url, "--output", "json", "worker", "run", "shop_jobs:good", "--queue", "orders"]
    assert main([*line, "--until-idle"]) == 0
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert (report["completed"], report["dead"], report["abandoned"]) == (2, 0, [])
    assert captured.err.count(" completed after ") == 2
    assert sorted(fields[b"result"] for fields in records(q)) == [b'{"seen": "one"}', b'{"seen": "two"}']


def test_a_queue_is_worked_in_batches(valkey: Valkey, q: Queue, shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put_all(q, b"one", b"two")
    line = ["--url", valkey.url, "--output", "json", "worker", "run", "shop_jobs:many", "--queue", "orders"]
    assert main([*line, "--until-idle", "--batch-wait", "5s"]) == 4
    assert "worker run: without --batch there are no batches" in capsys.readouterr().err
    assert main([*line, "--until-idle", "--batch", "10", "--batch-least", "2"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["completed"], report["dead"], report["delayed"]) == (1, 1, 0)


def test_a_stream_is_consumed(valkey: Valkey, q: Queue, shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    streams.append_many(q, "audit", [[("n", str(n))] for n in range(3)])
    line = ["--url", valkey.url, "--output", "json", "worker", "stream", "shop_jobs:book", "--queue", "orders"]
    more = ["--stream", "audit", "--group", "g", "--start", "head", "--attempts", "1", "--until-idle"]
    assert main([*line, *more]) == 0
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert (report["handled"], report["dead"]) == (2, 1)
    assert "dead, delivery 1: ValueError: no" in captured.err
    assert streams.length(q, "audit.dead") == 1


def test_errors_are_shown_on_one_line_that_cant_steer_a_terminal(
    valkey: Valkey, q: Queue, shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [job, _] = put_all(q, b"bad", b"fine")
    line = ["--url", valkey.url, "worker", "run", "shop_jobs:mixed", "--queue", "orders", "--until-idle"]
    assert main([*line, "--max-attempts", "1", "--no-record"]) == 0
    err = capsys.readouterr().err
    assert f"{job} dead after" in err
    assert "\\x1b[31mgood" in err
    assert "\x1b" not in err
    assert records(q) == []


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["shop_jobs"], "names no handler"),
        (["nowhere:good"], "no handler 'nowhere:good'"),
        (["shop_jobs:nothing"], "no handler 'shop_jobs:nothing'"),
        (["shop_jobs:time.sleep", "--lease", "30"], "write 30s"),
        (["shop_jobs:good", "--concurrency", "0"], "concurrency"),
        (["shop_jobs:good", "--recovery", "both"], "both"),
        (["shop_jobs:__name__"], "can't be called"),
    ],
)
def test_bad_input_is_one_clear_line(
    valkey: Valkey, q: Queue, shop: Path, capsys: pytest.CaptureFixture[str], words: list[str], text: str
) -> None:
    put_all(q, b"x")
    assert main(["--url", valkey.url, "worker", "run", *words, "--queue", "orders", "--until-idle"]) == 4
    err = capsys.readouterr().err
    assert err.startswith("emq-ops: ")
    assert err.count("\n") == 1
    assert text in err
    assert reads.counts(q).pending == 1


def test_a_module_that_can_not_be_imported_is_named(shop: Path) -> None:
    (shop / "broken_jobs.py").write_text("1 +")
    with pytest.raises(BadInputError, match="'broken_jobs' can't be imported: SyntaxError"):
        load_handler("broken_jobs:handle")


def start(valkey: Valkey, shop: Path, handler: str, *more: str) -> subprocess.Popen[str]:
    line = [str(TOOL), "--url", valkey.url, "--output", "json", "worker", "run", handler, "--queue", "orders", *more]
    return subprocess.Popen(line, cwd=shop, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_sigterm_ends_it_when_its_jobs_are_settled(valkey: Valkey, q: Queue, shop: Path) -> None:
    put_all(q, b"x")
    with start(valkey, shop, "shop_jobs:good") as process:
        eventually(lambda: records(q), "worked")
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=20)
    assert process.returncode == 0, err
    assert json.loads(out)["completed"] == 1


def test_a_hang_is_left_at_the_deadline_and_a_second_signal_does_not_wait(valkey: Valkey, q: Queue, shop: Path) -> None:
    [job] = put_all(q, b"x")
    with start(valkey, shop, "shop_jobs:hangs", "--stop", "10m") as process:
        eventually(lambda: reads.job_state(q, job) is reads.JobState.ACTIVE, "in hand")
        os.kill(process.pid, signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        os.kill(process.pid, signal.SIGINT)
        out, _ = process.communicate(timeout=20)
    assert process.returncode == 1
    assert json.loads(out)["abandoned"] == [job]


def test_until_idle_leaves_a_hang_names_it_and_loses_nothing(valkey: Valkey, q: Queue, shop: Path) -> None:
    """Also where jobs wait for the hand that hangs: nothing else can be claimed."""
    hung, waiting = put_all(q, b"x", b"y")
    line = ("--until-idle", "--give-up", "300ms", "--concurrency", "1", "--lease", "500ms", "--recovery", "none")
    with start(valkey, shop, "shop_jobs:hangs", *line) as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    assert json.loads(out)["abandoned"] == [hung]
    assert re.search(rf"^{hung}: no sign of life for \d+ s; left: worked again", err, re.MULTILINE)
    assert reads.counts(q).pending == 1
    eventually(lambda: recover.reap(q) == 1, "its lease lapses")
    assert sorted(claim.job for claim in (claims.claim(q, 60_000), claims.claim(q, 60_000)) if claim) == [hung, waiting]


def test_give_up_is_of_until_idle(valkey: Valkey, shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["--url", valkey.url, "worker", "run", "shop_jobs:good", "--queue", "orders", "--give-up"]
    assert main([*line, "5m"]) == 4
    assert "--give-up: without --until-idle nothing is given up" in capsys.readouterr().err
    assert main([*line, "5", "--until-idle"]) == 4
    assert "--give-up: '5' is no duration" in capsys.readouterr().err


def test_cancel_says_what_it_came_to(valkey: Valkey, q: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    active, waiting = put_all(q, b"", b"")
    assert claims.claim(q, 60_000) is not None
    gone = ids.mint()
    line = ["--url", valkey.url, "--output", "json", "worker", "cancel", "--queue", "orders"]
    assert main([*line, active, waiting, gone, "--reason", "no need"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows == [
        {"job": active, "answer": "signalled"},
        {"job": waiting, "answer": "removed"},
        {"job": gone, "answer": "gone"},
    ]
    assert main([*line, active, "nonsense"]) == 4
    q.server.write("ZADD", q.keys.active, 1, active)  # its lease lapsed long ago
    assert main([*line, active]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out) == [{"job": active, "answer": "unheld"}]
    assert "`emq-ops sweep orders` brings the job back" in told.err

"""Tables, progress and colour: what a terminal shows, and what a pipe is spared."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import pytest

from emq_ops.cli import progress
from emq_ops.cli.output import emit_rows
from emq_ops.cli.table import GOES_FIRST, instant_words, width
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.terminal import takes_colour
from tests.audit.working import failed
from tests.support.cli import emq
from tests.support.terminal import at_terminal, screen
from tests.support.valkey import Valkey

CONFIG = """
server: {{url: "{url}"}}
queues:
  orders-of-the-large-shop-in-the-north: {{stalled: {{every: 90s}}, dead: {{keep: 3, archive: false}}}}
"""
COMMANDS = ("ps", "history", "runs ls", "hold", "audit dead", "queue ls", "drift", "config show orders", "doctor")


@pytest.fixture
def site(valkey: Valkey, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a queue with a long name, applied, swept, with dead jobs of two errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS")
    Path("config.yaml").write_text(CONFIG.format(url=valkey.url))
    queue = Queue(server, "orders-of-the-large-shop-in-the-north")
    for error in (b"HTTP 503 of the payment provider, which was asked three times " * 3, b"boom"):
        failed(queue, error)
    assert emq("apply", "--yes", "--allow-loss").code == 0
    assert emq("sweep", queue.name).code == 0
    assert emq("hold", queue.name, "--for", "1h", "--why", "an incident that takes some words to tell of").code == 0


@pytest.mark.usefixtures("site")
def test_tables_fit_the_terminal_and_print_no_json() -> None:
    for command in COMMANDS:
        with screen(80) as shown:
            assert emq_on_screen(command) in (0, 2), command
        lines = shown.text().splitlines()
        assert lines or command in ("drift", "doctor"), command
        assert [line for line in lines if width(line) > 80] == [], command
        assert not any(sign in line for line in lines for sign in ('{"', "[{", "['")), command
    with screen(80) as shown:
        assert emq_on_screen("runs ls --wide") == 0
    assert "trigger" in shown.text().splitlines()[0]


def emq_on_screen(command: str) -> int:
    from emq_ops.cli.main import main

    return main(command.split())


def test_columns_go_in_a_known_order_and_numbers_stand_at_the_right(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "34")
    columns = ("queue", "jobs", "holder", "why", "error")
    assert GOES_FIRST.index("holder") < GOES_FIRST.index("why")
    rows = [{"queue": "a", "jobs": 9, "holder": "h" * 9, "why": "w" * 9, "error": "e"}, {"queue": "b", "jobs": 1000}]
    emit_rows(rows, "table", columns)
    told = capsys.readouterr()
    assert told.out.splitlines() == ["queue  jobs  why        error", "a         9  wwwwwwwww  e", "b      1000"]
    assert told.err == "emq-ops: no room for holder (--wide shows all)\n"
    monkeypatch.setenv("COLUMNS", "20")
    emit_rows(rows, "table", columns)
    assert capsys.readouterr().out.splitlines()[0] == "queue  jobs  error"


def test_what_is_too_wide_all_the_same_is_folded(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    emit_rows([{"n": 1, "text": "ü界" * 20}], "table", ("n", "text"))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(width, lines)) <= 30
    assert "".join(line[3:] for line in lines[1:]) == "ü界" * 20


@pytest.mark.parametrize(
    ("away", "words"),
    [
        (0, "now"),
        (-4_000, "4 s ago"),
        (-240_000, "4 min ago"),
        (7_200_000, "in 2 h"),
        (-90_000, "90 s ago"),
        (-3 * 86_400_000, "3 d ago"),
    ],
)
def test_instants_are_told_in_words(away: int, words: str) -> None:
    assert instant_words(1_000_000_000_000 + away, 1_000_000_000_000) == words


def test_a_table_tells_instants_relatively_and_other_forms_as_they_are(
    site: None, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    utc = re.compile(r"\d{4}-\d\d-\d\dT\d\d:")
    for line, column in (("history", "made"), ("show 1", "made"), ("runs ls", "started"), ("audit dead", "first_seen")):
        argv = line.split()
        told = emq(*argv, "--wide").out
        assert column in told, told
        assert re.search(r"\bnow\b|\d+ s ago", told), told
        assert not utc.search(told), told
        assert utc.search(emq(*argv, "--wide", "--utc").out)
        rows = emq(*argv, "--output", "json").json
        row = rows["groups"][0] if line == "audit dead" else rows[0] if isinstance(rows, list) else rows
        assert column not in row or utc.match(row[column])


def test_progress_has_rate_and_time_left() -> None:
    assert progress.words("fold a/b", 1_200, 5_000, 4.0) == "fold a/b: 1,200 of 5,000 (24 %), 300/s, 13 s left"
    assert progress.words("fold a/b", 6, 0, 4.0) == "fold a/b: 6, 1.5/s, 4 s so far"
    assert progress.words("doctor", 0, 0, 200.0) == "doctor: 3 min so far"


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress that is shown at once."""
    monkeypatch.setattr(progress, "AFTER_SECONDS", 0.0)
    monkeypatch.setattr(progress, "EVERY_SECONDS", 0.001)
    return


@pytest.mark.usefixtures("hasty")
def test_progress_is_drawn_on_a_terminal_and_gone_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    with screen(60, "stderr") as shown, progress.bar("verify orders/completions") as told:
        told(3, 10)
        until = time.monotonic() + 20
        while "3 of 10 (30 %)" not in shown.text():
            assert time.monotonic() < until
            time.sleep(0.001)
    assert shown.text().endswith("\r\x1b[K")
    monkeypatch.setenv("TERM", "dumb")
    with screen(60, "stderr") as shown, progress.bar("verify") as told:
        told(3, 10)
    assert shown.text() == ""


@pytest.mark.usefixtures("hasty")
def test_off_a_terminal_there_is_neither_progress_nor_colour(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with progress.bar("verify") as told:
        told(3, 10)
    assert capsys.readouterr() == ("", "")
    assert not takes_colour()
    monkeypatch.setenv("TERM", "xterm")
    with screen(80):
        assert takes_colour()
        monkeypatch.setenv("NO_COLOR", "1")
        assert not takes_colour()
        monkeypatch.delenv("NO_COLOR")
        monkeypatch.setenv("TERM", "dumb")
        assert not takes_colour(sys.stdout)


@pytest.mark.usefixtures("hasty", "site")
def test_long_commands_tell_how_far_they_are(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    name = "orders-of-the-large-shop-in-the-north"
    assert emq("release", name).code == 0
    gone = failed(Queue(server, name), b"to be removed")
    removed = emq("audit", "dead", name, "--error", "to be removed", "--remove", "--yes")
    assert removed.code == 0, removed
    for argv, words in (
        (("doctor", name), "doctor: "),
        (("rehydrate", name, gone), f"rehydrate {name}: "),
        (("import", name), "import: "),
        (("plan",), "plan: "),
        (("apply", "--yes"), "plan: "),
        (("sweep", name), f"sweep {name}: "),
    ):
        told = at_terminal(*argv)
        assert f"\r\x1b[K{words}" in told.err, (argv, told)

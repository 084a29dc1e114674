"""Every output of ``audit dead``, safe whatever strangers wrote: terminal, CSV, JSON and the page."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from emq_ops.audit.dead import audit_dead
from emq_ops.audit.page import dead_page
from emq_ops.ledger.ledger import open_ledger
from emq_ops.passes.acts.selection import DeadSelection
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from tests.audit.pages import UNSAFE, check_page
from tests.audit.working import failed
from tests.support.cli import emq
from tests.support.keyspace import dump, load_live
from tests.support.passing import dead_of
from tests.support.valkey import Valkey

HOSTILE = (
    b"<script>alert(1)</script>",
    b'"><img src=x onerror=alert(1)>',
    b"\x1b[2J\x1b]0;title\x07 cleared \x9b31m \xe2\x80\xae reversed",
    b'=HYPERLINK("http://evil.test","x")',
    b"+cmd|' /C calc'!A0",
    b"@SUM(1)",
    b"-2+3",
    b"line one\r\nline two\ttab",
    b"\xff\xfe\x00 bytes",
    b"{{ 7 * 7 }} ${x} %s </title></style></svg>",
    "\u2066isolated\u2069 \u200fmarks\u200b \u2028line \x85next \ufeff \U000e0041tag".encode(),
    '\uff1dHYPERLINK("http://evil.test") and a bomb \U0001f4a3\U0001f3fd'.encode(),
    b'"}]</script><script>alert(2)</script><!--',
    b"M" * 5_000_000,
)


def test_the_live_dead_letters_in_three_outputs(server: Server, valkey: Valkey, tmp_path: Path) -> None:
    load_live(server)
    before = dump(server)
    ran = emq("audit", "dead", "--url", valkey.url, "--state", f"sqlite:///{tmp_path}/none.db", "--output", "json")
    assert ran.code == 0
    document = json.loads(ran.out)
    assert document["dead"] == 86
    counts: dict[str, int] = {}
    for group in document["groups"]:
        counts[group["error"]] = counts.get(group["error"], 0) + group["jobs"]
    assert counts == {
        "stalled": 22,
        "** (KeyError) key :email not found in: %{id: #}": 12,
        "HTTP 503 Service Unavailable": 12,
        '=HYPERLINK("http://evil.test")': 12,
        "connection refused #ip:#": 11,
        "timeout after #ms calling https://api.example.test/v1/orders/#": 8,
        "<script>alert(#)</script>": 7,
        "": 2,
    }
    ran = emq("audit", "dead", "--url", valkey.url, "--state", f"sqlite:///{tmp_path}/none.db", "--output", "csv")
    rows = list(csv.DictReader(io.StringIO(ran.out)))
    assert sum(int(row["jobs"]) for row in rows) == 86
    assert '\'=HYPERLINK("http://evil.test")' in {row["error"] for row in rows}
    assert not [cell for row in rows for cell in row.values() if cell[:1] in "=+-@\t\r" and cell]
    table = emq("audit", "dead", "--url", valkey.url, "--state", f"sqlite:///{tmp_path}/none.db")
    assert "<script>alert(#)</script>" in table.out
    page = tmp_path / "page.html"
    emq("audit", "dead", "--url", valkey.url, "--state", f"sqlite:///{tmp_path}/none.db", "--html", str(page))
    seen = check_page(page.read_text("utf-8"))
    assert "<script>alert(18)</script>" in seen.text
    assert '=HYPERLINK("http://evil.test")' in seen.text
    assert dump(server) == before
    assert not (tmp_path / "none.db").exists()


def test_hostile_texts_are_safe_everywhere(server: Server, valkey: Valkey, tmp_path: Path) -> None:
    q = Queue(server, 'q<b>"=1')
    for error in HOSTILE:
        failed(q, error, payload=error[:100])
    failed(Queue(server, "\u202eq"), b"in a queue that turns text")
    common = ("audit", "dead", "--url", valkey.url, "--state", f"sqlite:///{tmp_path}/none.db")
    for extra in ((), ("--list",)):
        for output in ("table", "csv", "json", "jsonl"):
            ran = emq(*common, *extra, "--output", output)
            assert ran.code == 0, ran.err
            told = ran.out + ran.err
            assert not UNSAFE.search(told), (extra, output)
            assert len(told) < 100_000
            assert "5000000 bytes" in told or not extra
            if output == "csv":
                cells = [cell for row in csv.reader(io.StringIO(ran.out)) for cell in row]
                assert not [cell for cell in cells if cell[:1] in tuple("=+-@\uff1d")]
    page = check_page(emq(*common, "--html", "-").out)
    assert "onerror=alert(1)" in page.text
    assert "{{ # * # }}" in page.text
    assert "5000000 bytes" in page.text
    job = dead_of(q)[0]
    life = emq("audit", "job", job, "--url", valkey.url, "--state", f"sqlite:///{tmp_path}/none.db", "--html", "-")
    assert life.code == 0, life.err
    check_page(life.out)
    with open_ledger(f"sqlite:///{tmp_path}/state.db"):
        pass
    acted = emq(
        "audit", "dead", "\u202eq", *common[2:4], "--state", f"sqlite:///{tmp_path}/state.db", "--requeue", "--yes"
    )
    assert (acted.code, "1 requeued" in acted.err, UNSAFE.search(acted.err)) == (0, True, None)


def test_bytes_of_a_command_line_that_are_no_text(server: Server, valkey: Valkey) -> None:
    """As the shell hands them over; payloads and errors may be any bytes."""
    q = Queue(server, "orders")
    one, two = failed(q, b"odd \xff", payload=b"\x00\xff\xfe"), failed(q, b"odd \xfe", payload=b"\xfe\xff")

    def listed(*argv: str) -> list[str]:
        ran = emq("audit", "dead", "orders", *argv, "--url", valkey.url, "--list", "--output", "json")
        assert ran.code == 0, ran
        return [row["job"] for row in json.loads(ran.out)]

    assert listed("--payload", os.fsdecode(b"\xff\xfe")) == [one]
    assert listed("--error", os.fsdecode(b"odd \xfe")) == [two]
    assert listed("--job", two, "--job", two, "--job", one) == [one, two]
    for argv in (("--payload", os.fsdecode(b"\xff\xff")), ("--error", "*a" * 40 + "*b"), ("--payload", "x" * 100_000)):
        ran = emq("audit", "dead", "orders", *argv, "--url", valkey.url)
        assert (ran.code, ran.out, ran.err.count("\n")) == (4, "", 1)
        assert len(ran.err) < 1000
    [other] = [failed(Queue(server, "mail"), b"x")]
    assert emq("audit", "dead", "orders", "--job", other, "--url", valkey.url, "--remove", "--yes").code == 4


@pytest.mark.browser
def test_a_browser_shows_the_page_and_runs_nothing(server: Server, tmp_path: Path) -> None:
    chromium = shutil.which("chromium")
    assert chromium, "no chromium"
    q = Queue(server, "orders")
    for error in HOSTILE:
        failed(q, error + b"<script>document.title='run'</script>")
    page = tmp_path / "page.html"
    page.write_text(dead_page(audit_dead(server, ["orders"], DeadSelection())), "utf-8")
    flags = ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile", "--dump-dom")
    shown = subprocess.run([chromium, *flags, page.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    assert "<title>Dead jobs</title>" in shown.stdout
    assert "alert(1)" in shown.stdout
    assert "<script" not in shown.stdout
